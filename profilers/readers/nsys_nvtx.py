"""NVTX ranges of an Nsight Systems export: which are operators, which are steps.

``torch.autograd.profiler.emit_nvtx`` writes one range per operator, e.g. ``aten::add, seq = 5, op_id = 9, sizes =
[[8, 128], []]``. Ranges without such marks are people's own annotations. Where no range at all bears the marks (an
inference engine that annotates its layers, say), the annotations themselves are taken as operators, and a note says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from profilers.readers.columns import text_column
from profilers.readers.nesting import Ints, nest
from profilers.readers.nsys_db import Database
from profilers.readers.progress import Counter
from profilers.tables import OPERATORS, STEPS, Note

_MARKS = 34
_START_END = (60, 71)
_PARTS = (
    r"(?s)^(?P<name>.+?)(?P<seq>, seq = \d+)?(?P<op>, op_id = \d+)?"
    r"(?:, sizes = (?P<sizes>\[.*?\]))?(?:, input_op_ids = \[.*\])?$"
)
_PLAIN_OPERATOR = r"^aten::[\w.]+$"
_STEP = re.compile(
    r"^(ProfilerStep|(?:(?:train|training|eval|validation|test|inference|predict|decode|prefill)[ _-]?)?"
    r"(?:step|iteration|iter))[ _#:=-]*(\d*)$",
    re.IGNORECASE,
)
_INT32 = 2**31


@dataclass(frozen=True)
class Ranges:
    """What the ranges say: ``operators`` (nested, sorted by begin), ``steps``, and notes."""

    operators: pd.DataFrame = field(default_factory=OPERATORS.empty)
    steps: pd.DataFrame = field(default_factory=STEPS.empty)
    notes: tuple[Note, ...] = ()


def read_ranges(database: Database, tick: Counter) -> Ranges:
    """Operators and steps of the export's NVTX table (both empty where there is none)."""
    raw = database.integers(
        "NVTX_EVENTS",
        {"start": 0, "end": -1, "eventType": 59, "textId": -1, "globalTid": 0},
        tick,
        texts=("text",),
    )
    closed = raw["end"] >= raw["start"]
    notes = []
    unfinished = int(
        np.count_nonzero(~closed & (raw["eventType"] != _MARKS) & np.isin(raw["eventType"], (59, 60, 70, 71)))
    )
    if unfinished:
        notes.append(Note("open_ranges", "NVTX ranges without an end: left out", unfinished))
    if not closed.any():
        return Ranges(notes=tuple(notes))
    begin, end, thread = raw["start"][closed], raw["end"][closed], raw["globalTid"][closed]
    crossing = np.isin(raw["eventType"][closed], _START_END)
    labels = _labels(database, raw["text"][closed], raw["textId"][closed])
    names = _parse(labels.categories)
    is_operator = names["operator"].to_numpy()[labels.codes] & ~crossing
    steps, is_step, step_notes = _steps(labels, begin, end, thread)
    notes += step_notes
    if not is_operator.any():
        is_operator = ~crossing & ~is_step
        if is_operator.any():
            text = "NVTX ranges taken as operators: none is marked as one by torch's emit_nvtx"
            notes.append(Note("nvtx_as_operators", text, int(is_operator.sum())))
    is_operator &= ~is_step
    others = int(np.count_nonzero(~is_operator & ~is_step))
    if others:
        notes.append(Note("other_ranges", "NVTX ranges that are neither operators nor steps: not shown", others))
    chosen = np.flatnonzero(is_operator)
    chosen = chosen[np.lexsort((begin[chosen] - end[chosen], begin[chosen]))]
    operators = _operators(labels.codes[chosen], names, begin[chosen], end[chosen], thread[chosen])
    return Ranges(operators, steps, tuple(notes))


def _labels(database: Database, texts: npt.NDArray[np.object_], ids: Ints) -> pd.Categorical:
    """Each range's label, from its own text or by id; ``''`` where it has none."""
    by_id = database.strings(ids[ids >= 0])
    codes, distinct = pd.factorize(ids)
    named = np.array([by_id.get(key, "") for key in distinct.tolist()], dtype=object)
    own = np.array(pd.isna(texts))
    return text_column(np.where(own, named[codes], texts).astype(str).astype(object))


def _parse(labels: pd.Index) -> pd.DataFrame:
    """Per distinct label: operator or not, its bare name, and the shapes of its inputs as JSON."""
    texts = pa.array(labels.astype(str).tolist(), pa.large_string())
    parts = pc.extract_regex(texts, _PARTS)
    marked = np.zeros(len(labels), bool)
    for mark in ("seq", "op", "sizes"):
        marked |= _strings(pc.struct_field(parts, mark)).astype(bool)
    plain = np.asarray(pc.match_substring_regex(texts, _PLAIN_OPERATOR).to_numpy(zero_copy_only=False), bool)
    shapes = pc.replace_substring(pc.struct_field(parts, "sizes"), " ", "")
    return pd.DataFrame(
        {
            "operator": marked | plain,
            "name": _strings(pc.coalesce(pc.struct_field(parts, "name"), texts)),
            "shapes": _strings(shapes),
        }
    )


def _strings(values: pa.Array) -> npt.NDArray[np.object_]:
    return np.asarray(pc.fill_null(values, "").to_numpy(zero_copy_only=False), dtype=object)


def _operators(codes: Ints, names: pd.DataFrame, begin: Ints, end: Ints, thread: Ints) -> pd.DataFrame:
    parent, depth, own = nest(begin, end - begin, thread)
    label, shape = text_column(names["name"]), text_column(names["shapes"])
    frame = pd.DataFrame(
        {
            "op_id": np.arange(len(codes), dtype=np.int64),
            "name": pd.Categorical.from_codes(label.codes[codes], label.categories),
            "start_ns": begin,
            "dur_ns": end - begin,
            "self_ns": own,
            "thread_id": thread,
            "parent_id": parent,
            "depth": depth.astype(np.int32),
            "input_shapes": pd.Categorical.from_codes(shape.codes[codes], shape.categories),
        }
    )
    for column in ("name", "input_shapes"):
        frame[column] = frame[column].cat.remove_unused_categories()
    return OPERATORS.conform(frame)


def _steps(
    labels: pd.Categorical, begin: Ints, end: Ints, thread: Ints
) -> tuple[pd.DataFrame, npt.NDArray[np.bool_], list[Note]]:
    """The steps, which ranges they are, and what was left out.

    Of several kinds of step-like range (``epoch step``, ``iteration``, one set per process) the one with most ranges
    drives; ``ProfilerStep`` goes before any other.
    """
    found = [_STEP.match(text) for text in labels.categories]
    like = np.array([match is not None for match in found], bool)[labels.codes]
    rows = np.flatnonzero(like)
    if not len(rows):
        return STEPS.empty(), like, []
    families = [match[1].lower() if match else "" for match in found]
    numbers = np.array([int(match[2] or -1) if match and len(match[2]) < 10 else -1 for match in found], np.int64)
    table = pd.DataFrame(
        {
            "row": rows,
            "family": np.array(families, dtype=object)[labels.codes[rows]],
            "thread": thread[rows],
            "number": numbers[labels.codes[rows]],
        }
    )
    sizes = table.groupby(["family", "thread"], sort=True).size().reset_index(name="count")
    sizes["profiler"] = sizes["family"] == "profilerstep"
    best = sizes.sort_values(["profiler", "count"], ascending=False, kind="stable").iloc[0]
    chosen = table[(table["family"] == best["family"]) & (table["thread"] == best["thread"])]
    picked = chosen["row"].to_numpy()
    outer = nest(begin[picked], end[picked] - begin[picked], np.zeros(len(picked), np.int64))[1] == 0
    picked, number = picked[outer], chosen["number"].to_numpy()[outer]
    order = np.argsort(begin[picked], kind="stable")
    picked, number = picked[order], number[order]
    if (number < 0).any() or (number >= _INT32).any() or len(np.unique(number)) != len(number):
        number = np.arange(len(number))
    frame = pd.DataFrame(
        {
            "step": number.astype(np.int32),
            "start_ns": begin[picked],
            "dur_ns": end[picked] - begin[picked],
            "thread_id": thread[picked],
        }
    )
    notes = []
    if len(rows) > len(picked):
        text = "step-like NVTX ranges of other threads or other names: one set of steps drives"
        notes.append(Note("other_steps", text, len(rows) - len(picked)))
    return STEPS.conform(frame), like, notes
