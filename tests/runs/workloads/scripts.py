"""Scripts that know nothing of kernelscope, as text: tests write them into folders of their own."""

TRAIN = """
import argparse
import os
import signal
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--code", type=int, default=0)
parser.add_argument("--at-end", default="")
parser.add_argument("--own-profiler", action="store_true")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))

    def forward(self, x):
        return self.layers(x)


def main():
    given = parser.parse_args()
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    data = TensorDataset(torch.randn(512, 32), torch.randint(0, 8, (512,)))
    profiler = None
    if given.own_profiler:
        profiler = torch.profiler.profile(schedule=torch.profiler.schedule(wait=6, warmup=1, active=2, repeat=1))
        profiler.start()
    taken = 0
    while taken < given.steps:
        for x, y in DataLoader(data, batch_size=64, num_workers=given.workers):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            taken += 1
            if profiler is not None:
                profiler.step()
            if taken == given.steps:
                break
    if profiler is not None:
        profiler.stop()
        print("their events:", len(profiler.events()) > 0)
    print("steps taken:", taken)
    if given.at_end == "raise":
        raise ValueError("the data are broken")
    if given.at_end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if given.at_end == "text":
        sys.exit("nothing to do")
    sys.exit(given.code)


if __name__ == "__main__":
    main()
"""

RANGES = """
import torch
from torch.profiler import record_function

x = torch.randn(64, 64)
for number in range(20):
    with record_function("preparation"):
        y = x + 1
    with record_function(f"step {number}"):
        y = torch.mm(y, x)
"""

BY_TIME = """
import time

import torch

x = torch.randn(128, 128)
end = time.time() + 60
while time.time() < end:
    torch.mm(x, x)
    if __import__("os").path.exists("enough"):
        break
"""

OUR_NAMES = """
import atexit
import pickle
import sys

import apps
import tui.words
from profilers import WHO
import torch


class Thing:
    pass


atexit.register(lambda: print("exit handlers ran"))
print("theirs:", apps.WHO, tui.words.WHO, WHO)
print("main:", __name__, type(pickle.loads(pickle.dumps(Thing()))).__name__, sys.argv[1:], sys.path[0] == sys.argv[0].rpartition("/")[0])
weight = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(16):
    (weight * 2).sum().backward()
    optimizer.step()
"""

TWO_OPTIMIZERS = """
import torch

a, b = torch.zeros(4, requires_grad=True), torch.zeros(4, requires_grad=True)
first, second = torch.optim.SGD([a], lr=0.1), torch.optim.SGD([b], lr=0.1)
for _ in range(20):
    a.sum().backward()
    first.step()
    torch.mm(torch.ones(8, 8), torch.ones(8, 8))
    b.sum().backward()
    second.step()
"""

DISTRIBUTED = """
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
net = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number in range(100_000 if "long" in sys.argv else 20):
    optimizer.zero_grad()
    try:
        net(torch.randn(8, 16)).sum().backward()
    except RuntimeError:
        if "linger" in sys.argv:
            os.abort()  # as the watchdog of NCCL does, because of another rank
        raise
    optimizer.step()
    if number == 15 and rank == 1 and "linger" in sys.argv:
        threading.Thread(target=time.sleep, args=(2,)).start()
        dist.destroy_process_group()
        raise RuntimeError("rank one was first")
    if number == 15 and rank == 1 and "early" in sys.argv:
        break
    if number == 15 and rank == 1 and "hang" in sys.argv:
        sys.stdout.write("rank one waits for ")
        sys.stdout.flush()
        time.sleep(600)
    if number == 15 and rank == 1 and "raise" in sys.argv:
        raise RuntimeError("rank one is broken")
    if number == 15 and rank == 1 and "kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
sys.stdout.write(f"rank {rank} of {dist.get_world_size()} ended\\n")
dist.destroy_process_group()
"""
