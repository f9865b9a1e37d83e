"""``kernelscope run torchrun ... train.py args`` and its kin: understood, or refused with the command that does the same."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from profilers.collectors.telemetry.devices import DeviceRow
from tui.cli.devices import chosen_devices
from tui.cli.errors import UsageError
from tui.cli.launchers import launched, refuse_outer
from tui.cli.parser import parse
from tui.cli.plan import planned, specs, wishes

CPU = SimpleNamespace(device="cpu", uuid="")


@pytest.fixture(autouse=True)
def _this_python_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")


def made(line: str) -> list:  # type: ignore[type-arg]
    args = parse(["run", *line.split()])
    return specs(args, wishes(args.workloads, args.script_args, args.module), (CPU,))


@pytest.mark.parametrize(
    ("line", "ranks", "argv"),
    [
        ("torchrun --nproc-per-node=4 --standalone train.py --lr 1 --windows 9", 4, ("--lr", "1", "--windows", "9")),
        ("torchrun --nproc_per_node 2 train.py", 2, ()),
        ("torchrun train.py -- --x", 1, ("--x",)),
        ("python -u -m torch.distributed.run --nnodes=1 --nproc_per_node=3 train.py a -- b", 3, ("a", "--", "b")),
        ("python3 -m torch.distributed.launch --use_env --nproc_per_node=3 train.py", 3, ()),
        ("torchrun --nnodes 1:1 --node_rank 0 --rdzv_backend c10d --rdzv_endpoint localhost:0 train.py", 1, ()),
        ("torchrun --rdzv-id 7 --master_addr 127.0.0.1 --nproc-per-node 2 --no-python python -u train.py x", 2, ("x",)),
        ("python train.py --device cuda", 1, ("--device", "cuda")),
    ],
)
def test_ranks_and_arguments_are_the_launchers(line: str, ranks: int, argv: tuple[str, ...], tmp_path: Path) -> None:
    (spec,) = made(f"--windows 2 --no-tui {line}")
    assert (spec.target, spec.workload, spec.ranks, spec.argv) == ("script", str(tmp_path / "train.py"), ranks, argv)
    assert spec.windows == 2, "options before the launcher are ours"


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("torchrun --nproc-per-node 2 -m pkg.train --x", 2),
        ("python -m pkg.train --x", 1),
        ("-m pkg.train --nproc 2 -- --x", 2),
    ],
)
def test_a_module_is_a_script_too(line: str, ranks: int) -> None:
    (spec,) = made(line)
    assert (spec.target, spec.workload, spec.module, spec.name) == ("script", "pkg.train", True, "train")
    assert (spec.ranks, spec.argv) == (ranks, ("--x",))


@pytest.mark.parametrize(
    ("line", "says", "instead"),
    [
        ("torchrun --nnodes 2 --nproc-per-node 8 train.py --x", "--nnodes 2", "run --device cpu --nproc 8 train.py -- --x"),
        ("torchrun --nnodes=1:4 --nproc-per-node 8 -m a.b", "--nnodes 1:4", "run --device cpu --nproc 8 -m a.b"),
        ("torchrun --node-rank 1 train.py", "--node-rank 1", "run --device cpu --nproc 1 train.py"),
        ("torchrun --rdzv-endpoint gpu07:29500 train.py", "--rdzv-endpoint gpu07:29500", "--nproc 1 train.py"),
        ("torchrun --rdzv-backend etcd train.py", "--rdzv-backend etcd", "--nproc 1 train.py"),
        ("torchrun --master-addr 10.0.0.1 train.py", "--master-addr 10.0.0.1", "--nproc 1 train.py"),
        ("torchrun --no-python ./train.sh", "--no-python", "--nproc 1 ./train.sh"),
        ("torchrun --virtual-local-rank train.py", "--virtual-local-rank", "--nproc 1 train.py"),
        ("python -m torch.distributed.launch --nproc_per_node=2 train.py", "deprecated", "torchrun --nproc_per_node=2 train.py"),
        ("accelerate launch --num_processes=4 train.py --lr 1", "accelerate", "torchrun --nproc-per-node 4 train.py --lr 1"),
        ("python -m accelerate.commands.launch --num_processes 4 train.py", "accelerate", "torchrun --nproc-per-node 4 train.py"),
        ("deepspeed --num_gpus 2 train.py", "deepspeed", "torchrun --nproc-per-node 2 train.py"),
        ("mpirun -np 4 python train.py", "mpirun", "torchrun --nproc-per-node 4 train.py"),
        ("torchrun --nproc-per-node xpu train.py", "--nproc-per-node xpu", "cpu, gpu, auto"),
        ("--nproc 2 torchrun --nproc-per-node 2 train.py", "the same", "leave one of them out"),
        ("torchrun --nproc-per-node 2", "no script", "train.py"),
        ("torchrun --wat train.py", "unrecognized arguments: --wat", ""),
        ("python -c pass", "python's own -c", "into a file"),
        ("python", "no script", "python train.py"),
        ("-m a-b", "no module's name", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_had_names_what_can(line: str, says: str, instead: str) -> None:
    with pytest.raises(UsageError) as raised:
        made(f"--device cpu {line}")
    text = str(raised.value)
    assert says in text and instead in text and "\n" not in text


def test_what_somebody_might_miss_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    args = parse(
        [
            "run",
            "--device",
            "cpu",
            "torchrun",
            "--max-restarts",
            "3",
            "-t",
            "3",
            "--log-dir",
            "logs",
            "--monitor-interval",
            "5",
            "train.py",
        ]
    )
    planned(args)
    assert capsys.readouterr().err.splitlines() == [
        "note: torchrun's --max-restarts, --tee, --log-dir left out: ranks that fail are not started again, what ranks "
        "print is in the run's log"
    ]


def test_another_python_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "bin" / "torchrun"
    other.parent.mkdir()
    other.write_text("")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    found = launched(["run", "torchrun", "train.py"], 1)
    assert found is not None
    assert found.notes == (f"kernelscope's own Python runs the script ({sys.executable}), not {other}",)


@pytest.mark.parametrize(
    "line", ["gpt2 --name torchrun", "--name python gpt2", "train.py -- torchrun x.py", "--no-tui gpt2"]
)
def test_a_launchers_name_elsewhere_is_none(line: str) -> None:
    assert launched(["run", *line.split()], 1) is None


def test_a_rank_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert made("torchrun --nproc-per-node cpu train.py")[0].ranks == 3


def test_inside_torchrun_the_right_command_is_named() -> None:
    environment = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "1"}
    refuse_outer(["run", "train.py"], True, {})
    with pytest.raises(UsageError, match=r"started this 4 times.*type: kernelscope run --nproc 4 train.py -- --lr 1$"):
        refuse_outer(["run", "train.py", "--", "--lr", "1"], True, environment)
    with pytest.raises(UsageError, match=r"type: kernelscope run --nproc=2 train.py$"):
        refuse_outer(["run", "--nproc=2", "train.py"], True, environment)
    with pytest.raises(UsageError, match="one machine alone: torchrun has 2"):
        refuse_outer(["run", "train.py"], True, {**environment, "GROUP_WORLD_SIZE": "2"})
    with pytest.raises(UsageError, match=r"start kernelscope once; type: kernelscope run gpt2$"):
        refuse_outer(["run", "gpt2"], False, environment)


def gpu(number: int, users: str = "", used: float = 0.0) -> DeviceRow:
    return DeviceRow(f"cuda:{number}", "", f"GPU-{number}", "cuda", 80.0, used, 0.0, users)


def test_ranks_get_the_free_gpus_in_their_order() -> None:
    rows = [gpu(0), gpu(1, "eve"), gpu(2, used=9.0), gpu(3)]
    assert [row.device for row in chosen_devices("auto", rows, "CUDA 12", ranks=3)] == ["cuda:0", "cuda:2", "cuda:3"]
    assert [row.device for row in chosen_devices("cuda:1,cuda:0", rows, "CUDA 12", ranks=2)] == ["cuda:1", "cuda:0"]
    with pytest.raises(UsageError, match="5 ranks need 5 GPUs or the CPU; here is cuda:0, cuda:1, cuda:2, cuda:3"):
        chosen_devices("auto", rows, "CUDA 12", ranks=5)


@pytest.mark.parametrize("line", ["torchrun --nproc-per-node 2 train.py --x", "train.py -- --x", "python train.py"])
def test_without_run_it_is_named(line: str) -> None:
    with pytest.raises(UsageError, match=f"to profile it: kernelscope --ascii run {line}$"):
        parse(["--ascii", *line.split()])
