"""A user's folder may have packages with our names: theirs win, and ours go on working."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from profilers.collectors import protocol
from profilers.collectors.failures import UsageError
from profilers.collectors.protocol import Failure, Progress
from profilers.collectors.usercode import load_callable, wants_request
from profilers.runs.folder import RunFolder
from profilers.runs.spec import Spec

SCRIPT = """
    import torch
    import apps
    import apps.models
    import tui
    import profilers
    from apps import WHO

    print("apps:", WHO, apps.models.WHO, "tui:", tui.WHO, "profilers:", profilers.WHO, flush=True)
    x = torch.randn(8, 8)

    def build(request):
        def step():
            import tui.late

            assert tui.late.WHO == "theirs"
            torch.mm(x, x)
        return step
"""


def folder_with_our_names(tmp_path: Path) -> Path:
    """``apps`` and ``profilers`` are packages, ``tui`` a folder without an __init__ beside a module of constants."""
    home = tmp_path / "their work"
    for name in ("apps", "profilers"):
        (home / name).mkdir(parents=True)
        (home / name / "__init__.py").write_text("WHO = 'theirs'\n")
    (home / "apps" / "models.py").write_text("WHO = 'theirs too'\n")
    (home / "tui").mkdir()
    (home / "tui" / "__init__.py").write_text("WHO = 'theirs'\n")
    (home / "tui" / "late.py").write_text("WHO = 'theirs'\n")
    (home / "train.py").write_text(textwrap.dedent(SCRIPT))
    return home


def work(run: RunFolder) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-P", "-m", "profilers.collectors.worker", str(run.path)],
        capture_output=True,
        text=True,
        cwd=run.spec().cwd or None,
    )


def test_their_names_win(tmp_path):
    home = folder_with_our_names(tmp_path)
    spec = Spec(
        name="theirs", workload="train.py:build", target="callable", cwd=str(home), warmup=1, timed_steps=2, windows=1
    )
    run = RunFolder.create(tmp_path / "runs", spec)
    done = work(run)
    assert done.returncode == 0, done.stderr
    assert "apps: theirs theirs too tui: theirs profilers: theirs" in done.stdout
    progress = msgspec.json.decode((run.path / protocol.PROGRESS).read_bytes(), type=Progress)
    assert (progress.state, progress.windows_done, progress.steps_timed) == ("done", 1, 2)
    assert (run.path / "raw" / "0001.json").stat().st_size > 1000


def test_a_folder_without_init_hides_ours_too(tmp_path):
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "thing.py").write_text("WHO = 'theirs'\n")
    code = (
        "import sys; from pathlib import Path; import apps.catalogue; from profilers.collectors import usercode;"
        "usercode.step_aside(Path(sys.argv[1]));"
        "import apps.thing; print(apps.thing.WHO, hasattr(apps, '__file__') and bool(apps.__file__));"
        "import tui; print(bool(tui.__file__))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, str(tmp_path)], capture_output=True, text=True)
    # What they do not have is still ours: a script may use the catalogue.
    assert done.stdout.split() == ["theirs", "False", "True"], done.stderr


def test_a_mistake_is_told_in_one_line(tmp_path):
    (tmp_path / "bad.py").write_text("def build(request):\n    return 5\n\nclass Box:\n    pass\n")
    spec = Spec(name="x", workload="bad.py:build", target="callable", cwd=str(tmp_path), windows=1)
    run = RunFolder.create(tmp_path / "runs", spec)
    assert work(run).returncode == 1
    failure = msgspec.json.decode((run.path / protocol.FAILURE).read_bytes(), type=Failure)
    assert failure.kind == "usage"
    assert failure.cause == (
        "bad.py:build returned a int: a step to call, a module and its inputs, or an object with .step, is needed"
    )


PAIRS = """
import torch

def pair():
    return torch.nn.Linear(4, 2), torch.ones(3, 4)

def keywords(request):
    return torch.nn.Linear(4, 2), {"input": torch.ones(request.batch, 4)}

def attribute():
    net = torch.nn.Linear(4, 2)
    net.example_inputs = (torch.ones(5, 4),)
    return net

module = attribute()
"""


@pytest.mark.parametrize("name", ["pair", "keywords", "attribute", "module"])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_module_and_its_inputs_are_stepped_not_built_again(tmp_path, name, mode):
    (tmp_path / "pairs.py").write_text(PAIRS)
    spec = Spec(
        name="x",
        workload=f"pairs.py:{name}",
        target="callable",
        cwd=str(tmp_path),
        mode=mode,
        warmup=1,
        timed_steps=1,
        windows=1,
    )
    run = RunFolder.create(tmp_path / "runs", spec)
    done = work(run)
    assert done.returncode == 0, done.stderr
    trace = (run.path / "raw" / "0001.json").read_text()
    assert trace.count('"aten::addmm"') == 1
    assert "uniform_" not in trace, "weights are made once, not in every step"
    assert ("Optimizer.step" in trace) == (mode == "train")
    progress = msgspec.json.decode((run.path / protocol.PROGRESS).read_bytes(), type=Progress)
    assert progress.parameters == 10


def test_mistakes_in_names(tmp_path):
    (tmp_path / "other_bad.py").write_text("NUMBER = 3\nclass Box:\n    def go(self, x, y=1): ...\n")
    with pytest.raises(UsageError, match=r"'NUMBER' in other_bad\.py is not callable"):
        load_callable(tmp_path / "other_bad.py", "NUMBER")
    with pytest.raises(UsageError, match=r"other_bad\.py has no 'Bix'; it has Box"):
        load_callable(tmp_path / "other_bad.py", "Bix")
    with pytest.raises(UsageError, match="there is no file"):
        load_callable(tmp_path / "missing.py", "build")
    assert wants_request(load_callable(tmp_path / "other_bad.py", "Box.go"))
    assert not wants_request(lambda: None)
    assert not wants_request(lambda x=1, *more, **others: None)
    assert wants_request(lambda x: None)
