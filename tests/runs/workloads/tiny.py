"""Small workloads that the tests run in real worker processes: one that works, and one for each way to fail."""

import ctypes
import os
import signal
import sys
import time

import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(32)
        self.linear = torch.nn.Linear(32, 32)

    def forward(self, x):
        return torch.relu(self.linear(self.norm(x)))


class Built:
    def __init__(self, step, module, items=4):
        self.step = step
        self.module = module
        self.items = items
        self.item_name = "rows"
        self.notes = ("made by a test",)


def build(request):
    torch.manual_seed(request.seed)
    module = torch.nn.Sequential(Block(), Block())
    x = torch.randn(4, 32)
    print("built", request.mode, flush=True)

    def step():
        if request.mode == "train":
            module(x).sum().backward()
        else:
            module(x)

    return Built(step, module)


_x = torch.randn(8, 8)


def step():
    torch.mm(_x, _x)


def slow():
    time.sleep(0.05)
    torch.mm(_x, _x)


def _after(count, act):
    taken = 0

    def step():
        nonlocal taken
        taken += 1
        if taken > count:
            act()
        torch.mm(_x, _x)

    return step


def raises(request):
    def act():
        raise ValueError("the third layer\nis upset")

    return _after(8, act)


def exits(request):
    return _after(8, lambda: sys.exit(3))


def vanishes(request):
    return _after(8, lambda: os._exit(7))


def segfaults(request):
    return _after(8, lambda: ctypes.string_at(0))


def killed(request):
    return _after(8, lambda: os.kill(os.getpid(), signal.SIGKILL))


def too_big(request):
    return _after(0, lambda: torch.empty(2**55, dtype=torch.uint8))


def gpu_too_big(request):
    def act():
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which "
            "1.25 GiB is free. Process 7 has 77.00 GiB memory in use."
        )

    return _after(0, act)


def stubborn(request):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return slow


def not_a_step(request):
    return 5


def module_only(request):
    return Block()


def with_children(request):
    """Helpers of its own, as data loaders are."""
    import subprocess

    for _ in range(2):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return slow
