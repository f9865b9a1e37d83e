"""Models by folder or id: what is needed of them, and what is never fetched."""

from __future__ import annotations

import json

import pytest

from profilers.runs.launch import launch
from profilers.runs.spec import Spec
from tests.runs.support import ended

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
PARAMETERS = 2 * 64 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "tiny-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def run_of(root, workload, **changes):
    given = {"name": "tiny", "workload": str(workload), "target": "hub", "warmup": 1, "timed_steps": 1, "windows": 1}
    (run,) = launch([Spec(**{**given, **changes})], root)
    return run, ended(run)


def test_a_folder_needs_its_configuration_only(root, model):
    run, status = run_of(root, model, seq=16)
    assert (status.state, status.windows_done) == ("finished", 1), run.log_tail(20)
    assert status.parameters == PARAMETERS
    assert any("random weights" in note for note in status.notes)
    assert "LlamaRMSNorm" in set(run.recording().operators["module"].astype(str))


def test_pretrained_weights_come_from_the_folder(root, model):
    import transformers

    config = transformers.AutoConfig.from_pretrained(model)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(model)
    run, status = run_of(root, model, seq=16, weights="pretrained")
    assert status.state == "finished", run.log_tail(20)
    assert any("weights of" in note for note in status.notes)


def test_what_is_missing_is_named(root, model):
    _, status = run_of(root, model, weights="pretrained")
    assert (status.state, status.cause_kind) == ("failed", "usage")
    assert "no weights found" in status.cause and "--weights random needs none" in status.cause


def test_an_id_that_is_not_in_the_cache_is_not_fetched(root):
    _, status = run_of(root, "nobody-of-that-name/no-such-model")
    assert (status.state, status.cause_kind) == ("failed", "usage")
    assert "it is not in the local cache: --download fetches it" in status.cause


def test_a_folder_on_the_meta_device(root, model):
    run, status = run_of(root, model, seq=16, device="meta", dtype="bf16", warmup=0, timed_steps=0)
    assert status.state == "finished", run.log_tail(20)
    assert status.parameters == PARAMETERS
