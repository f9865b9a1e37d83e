"""The catalogue: what it lists without torch, how names are found, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from apps import catalogue
from apps.catalogue import BadRequest, CatalogueError, UnknownWorkload, entries, expand, lookup, suites

FILE = """
[suite]
title = "Test"
include = [{include}]

[workload.one]
title = "One"
doc = "A test."
task = "nothing"
builder = "apps.hf.causal:build"
modes = ["train"]
dtypes = [{dtypes}]

[workload.one.sizes.full]
batch = 2
[workload.one.sizes.tiny]
batch = 1
"""


def test_lists_everything_without_torch() -> None:
    code = (
        "import sys; from apps import catalogue as c; n = len(c.entries());"
        "c.lookup('gpt2').request(device='cuda'); c.expand('nongemm'); c.lookup('gpt2').missing();"
        "bad = [m for m in ('torch', 'transformers', 'pandas', 'numpy', 'diffusers') if m in sys.modules];"
        "print(n, bad)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split(" ", 1)
    assert int(out[0]) == len(entries()) > 40
    assert out[1].strip() == "[]"


def test_the_study_suite_has_its_seventeen_models() -> None:
    assert len(expand("nongemm")) == 17
    assert len(expand("core")) == 6
    assert {"gpt2", "bert-base", "vit-b-16", "swin-t"} <= {*expand("nongemm")}


def test_names_and_aliases_mean_one_workload() -> None:
    names = [n for e in entries() for n in (e.name, *e.aliases)]
    assert len(names) == len({*names})
    assert not {*names} & {*suites()}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("gpt2", "gpt2"),
        ("nongemm/gpt2", "gpt2"),
        ("core/gpt2", "gpt2"),
        ("GPT2", "gpt2"),
        ("bert", "bert-base"),
        ("ViT-B/16", "vit-b-16"),
        ("llama_2_7b", "llama-2-7b"),
        ("nongemm/mixtral", "mixtral-8x7b"),
    ],
)
def test_lookup(asked: str, found: str) -> None:
    assert lookup(asked).name == found
    assert expand(asked) == [found]


@pytest.mark.parametrize(("asked", "near"), [("gtp2", "gpt2"), ("resnet", "resnet-50"), ("modern/gpt2", "gpt2")])
def test_unknown_names_get_the_nearest_ones(asked: str, near: str) -> None:
    with pytest.raises(UnknownWorkload) as error:
        lookup(asked)
    assert near in str(error.value) and "\n" not in str(error.value)


def test_a_name_like_nothing_points_to_the_list() -> None:
    with pytest.raises(UnknownWorkload, match="ls models"):
        lookup("zzzzqqqq")
    with pytest.raises(UnknownWorkload, match="is a suite"):
        lookup("nongemm")


def test_defaults_fit_the_device() -> None:
    gpt2 = lookup("gpt2")
    cpu, cuda, meta = (gpt2.request(device=d) for d in ("cpu", "cuda:1", "meta"))
    assert (cpu.dtype, cuda.dtype, meta.dtype) == ("fp32", "bf16", "bf16")
    assert (cpu.batch, cuda.batch, cuda.seq, cuda.mode) == (1, 8, 256, "infer")
    assert lookup("maskformer").request(device="cuda").dtype == "fp32"


@pytest.mark.parametrize(
    ("wishes", "says"),
    [
        ({"size": "huge"}, "full or tiny"),
        ({"mode": "dream"}, "infer, train, prefill or decode"),
        ({"dtype": "int4"}, "fp32, fp16 or bf16"),
        ({"attention": "magic"}, "sdpa or eager"),
        ({"batch": 0}, "1 to 4096"),
        ({"batch": 100_000}, "1 to 4096"),
        ({"seq": 2048}, "1 to 1024"),
    ],
)
def test_refused_wishes_name_what_is_allowed(wishes: dict[str, object], says: str) -> None:
    with pytest.raises(BadRequest) as error:
        lookup("gpt2").request(**wishes)  # type: ignore[arg-type]
    assert says in str(error.value) and "gpt2" in str(error.value) and "\n" not in str(error.value)


def test_a_workload_without_a_sequence_takes_none() -> None:
    with pytest.raises(BadRequest, match="no sequence"):
        lookup("resnet-50").request(seq=128)


def test_sizes_that_depend_on_data_are_refused_on_meta() -> None:
    with pytest.raises(BadRequest, match="depend on the data"):
        lookup("faster-rcnn").request(device="meta")


def test_every_entry_is_complete() -> None:
    for entry in entries():
        full, tiny = entry.sizes["full"], entry.sizes["tiny"]
        assert full.parameters > 0, entry.name
        assert {*full.memory_gb} == {*entry.modes}, entry.name
        assert all(gb > full.parameters * 2e-9 for gb in full.memory_gb.values()), entry.name
        assert (full.seq is None) == (tiny.seq is None), entry.name
        for mode in entry.modes:
            for size in entry.sizes:
                assert entry.request(size=size, mode=mode, device="cuda").dtype in entry.dtypes


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.EXTRAS, "diffusion", ("no_such_module_at_all",))
    with pytest.raises(BadRequest, match=r"no_such_module_at_all: pip install 'kernelscope\[diffusion\]'"):
        lookup("sd15-unet").load()


@pytest.mark.parametrize(
    ("include", "dtypes", "says"),
    [('"two"', '"fp32"', "two"), ("", '"fp64"', "fp64"), ("", '"fp32"]\nsurprise = [1', "surprise")],
)
def test_a_suite_file_with_a_mistake_is_named(tmp_path: Path, include: str, dtypes: str, says: str) -> None:
    (tmp_path / "own.toml").write_text(FILE.format(include=include, dtypes=dtypes))
    with pytest.raises(CatalogueError, match=rf"own\.toml.*{says}"):
        catalogue.read(tmp_path)


def test_the_same_name_in_two_files_is_refused(tmp_path: Path) -> None:
    text = FILE.format(include="", dtypes='"fp32"')
    (tmp_path / "a.toml").write_text(text)
    (tmp_path / "b.toml").write_text(text)
    with pytest.raises(CatalogueError, match="already in suite a"):
        catalogue.read(tmp_path)
