"""Users' own rules, and what is said when they are wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profilers.rules.load import RulesError, load_rules, user_rules

GOOD = """
[[kernel]]
id = "mine"
match = "my_kernel"
group = "softmax"

[[operator]]
id = "my-op"
names = ["mm"]
group = "other"

[[module]]
id = "my-module"
match = "Frobnicator"
group = "normalization"
takes = ["elementwise"]
"""


def write(folder: Path, text: str, name: str = "rules.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_the_users_file_is_found_and_wins(tmp_path: Path) -> None:
    assert user_rules() == Path(os.environ["XDG_CONFIG_HOME"]) / "kernelscope" / "rules.toml"
    assert load_rules().operator("aten::mm").group == "matmul"
    path = write(user_rules().parent, GOOD)
    rules = load_rules()
    assert rules.kernel("my_kernel<float>").group == "softmax"
    assert rules.kernel("my_kernel<float>").rule == "rules.toml:mine"
    assert rules.operator("aten::mm").group == "other"
    assert rules.operator("aten::bmm").group == "matmul"
    assert rules.module("Frobnicator").group == "normalization"
    assert rules.where("rules.toml:my-op") == f"{path}:7"
    path.unlink()
    assert load_rules().operator("aten::mm").group == "matmul"


def test_later_files_win_and_the_first_rule_of_a_file_does(tmp_path: Path) -> None:
    first = write(tmp_path, '[[kernel]]\nid = "a"\nmatch = "k"\ngroup = "softmax"\n', "one.toml")
    second = write(
        tmp_path,
        '[[kernel]]\nid = "a"\nmatch = "k1"\ngroup = "loss"\n[[kernel]]\nid = "b"\nmatch = "k1"\ngroup = "scan"\n',
        "two.toml",
    )
    rules = load_rules([first, second])
    assert rules.kernel("k1").rule == "two.toml:a"
    assert rules.kernel("k2").rule == "one.toml:a"
    assert load_rules([second, first]).kernel("k1").rule == "one.toml:a"


def test_two_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    one = write(tmp_path / "a", '[[kernel]]\nid = "x"\nmatch = "k1"\ngroup = "loss"\n')
    two = write(tmp_path / "b", '[[kernel]]\nid = "x"\nmatch = "k2"\ngroup = "scan"\n')
    rules = load_rules([one, two])
    assert rules.where(rules.kernel("k1").rule) == f"{one}:1"
    assert rules.where(rules.kernel("k2").rule) == f"{two}:1"


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, '[[kernel]]\nid = "x"\nmatch = "k1"\ngroup = "loss"\n')
    assert load_rules([path]) is load_rules([path])
    assert load_rules([path]).kernel("k1").group == "loss"
    write(tmp_path, '[[kernel]]\nid = "x"\nmatch = "k1"\ngroup = "random"\n')
    assert load_rules([path]).kernel("k1").group == "random"


def test_case_and_where_a_pattern_looks(tmp_path: Path) -> None:
    text = """
    [[kernel]]
    id = "case"
    match = "ABC"
    ignore_case = true
    group = "loss"
    [[kernel]]
    id = "template"
    match = "^lib::run$"
    inside = "Thing"
    group = "scan"
    [[kernel]]
    id = "signature"
    anywhere = "OnlyInTheParameters"
    group = "roi"
    """
    rules = load_rules([write(tmp_path, text)])
    assert rules.kernel("void abc_kernel(int)").group == "loss"
    assert rules.kernel("void lib::run<(anonymous namespace)::Thing<4>, float>(int)").group == "scan"
    assert rules.kernel("void lib::run<int>(Thing)").group == "unclassified"
    assert rules.kernel("void zzz<int>(OnlyInTheParameters*)").group == "roi"


def test_a_weak_rule_of_the_users_gives_way(tmp_path: Path) -> None:
    import pandas as pd

    from profilers.tables import KERNELS, OPERATORS

    operators = OPERATORS.conform(pd.DataFrame({"op_id": [0], "name": ["aten::gelu"]}))
    kernels = KERNELS.conform(pd.DataFrame({"name": ["my_kernel"], "op_id": [0]}))
    for decisive, group in (("true", "scan"), ("false", "activation")):
        text = f'[[kernel]]\nid = "x"\nmatch = "my_kernel"\ngroup = "scan"\ndecisive = {decisive}\n'
        rules = load_rules([write(tmp_path, text, f"{decisive}.toml")])
        done = rules.classify_kernels(kernels, rules.classify_operators(operators))
        assert list(done["group"]) == [group]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[[kernel]\n", 1, "not valid TOML"),
        ('[[kernel]]\nid = "x"\nmatch = "("\ngroup = "loss"\n', 1, "match is not a valid regular expression"),
        (
            '\n\n[[kernel]]\nid = "x"\nmatch = "a"\ngroup = "losses"\n',
            3,
            "group 'losses' is unknown; use one of matmul",
        ),
        ('[[kernel]]\nid = "x"\nmatch = "a"\n', 1, "give it a group"),
        ('[[kernel]]\nid = "x"\ngroup = "loss"\n', 1, "say what it matches: anywhere, inside, match"),
        ('[[kernel]]\nmatch = "a"\ngroup = "loss"\n', 1, "give it an id"),
        ('[[kernel]]\nid = "a b"\nmatch = "a"\ngroup = "loss"\n', 1, "give it an id"),
        ('[[kernel]]\nid = "x"\nmatch = "a"\ngroup = "loss"\ntakes = ["loss"]\n', 1, "unknown key 'takes'"),
        ('[[operator]]\nid = "x"\nmatch = "a"\ngroup = "loss"\ntakes = ["nope"]\n', 1, "unknown group 'nope'"),
        ('[[operator]]\nid = "x"\nnames = "mm"\ngroup = "loss"\n', 1, "names must be a list of strings"),
        ('[[kernel]]\nid = "x"\nmatch = 3\ngroup = "loss"\n', 1, "match must be a string"),
        ('[[kernel]]\nid = "x"\nmatch = "a"\ngroup = "loss"\ndecisive = "yes"\n', 1, "decisive must be true or false"),
        ('[[kernel]]\nid = "x"\nmatch = "a"\ngroup = "loss"\nwords = "all"\n', 1, "words needs a group (?P<words>...)"),
        ('[kernel]\nid = "x"\n', 0, "write [[kernel]] (double brackets)"),
        ('[[kernels]]\nid = "x"\n', 0, "unknown key 'kernels'"),
        ('dominance = ["nope"]\n', 0, "dominance must be a list of groups"),
        ('dominance = [["loss"]]\n', 0, "dominance must be a list of groups"),
        (
            '[[kernel]]\nid = "x"\nmatch = "a{9999999999}"\ngroup = "loss"\n',
            1,
            "match is not a valid regular expression",
        ),
        (
            '[[kernel]]\nid = "x"\nmatch = "a"\ngroup = "loss"\n[[operator]]\nid = "x"\nmatch = "a"\ngroup = "loss"\n',
            5,
            "this id is taken by line 1",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RulesError) as caught:
        load_rules([path])
    message = str(caught.value)
    assert says in message
    assert message.startswith(str(path))
    assert "\n" not in message
    if line and "TOML" not in says:
        assert message.startswith(f"{path}:{line} (rule ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="cannot read the rules"):
        load_rules([tmp_path / "absent.toml"])
    with pytest.raises(RulesError, match="cannot read the rules"):
        load_rules([tmp_path])
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RulesError, match="not UTF-8"):
        load_rules([binary])


def test_a_broken_users_file_is_an_error_not_a_silence() -> None:
    write(user_rules().parent, "[[kernel]]\n")
    with pytest.raises(RulesError, match="give it an id"):
        load_rules()
