"""Counters of Nsight Compute laid onto the kernels of another recording.

Nothing but the name, the launch dimensions and the order ties the two together, and the two tools spell names
differently. A pair is made, in this order of trust, where

1. the names agree once spelling is evened out (return type, spaces, ``(int)4`` for ``4``, ``(bool)1`` for ``true``, unnamed namespaces,
   parameter list) and so do the launch dimensions; then where the names alone agree;
2. the bare names (before ``<`` and ``(``) agree, each stands for one single kernel on both sides; or ncu wrote bare
   names only, and the thread counts of the two sequences are the same one after the other.

Within a pair of names, the first occurrence goes with the first, and so on; where the recording has more (several steps
were recorded and one was measured), the counters repeat in order.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from profilers.readers.nesting import NONE, Ints
from profilers.tables import KERNELS, Note, Recording

_COPIED = ("sm_pct", "dram_pct", "tensor_pct")
_MEASURED = ("flops", "bytes")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|unnamed>::|\{anonymous\}::|_GLOBAL__N__\w*::")
_CAST = re.compile(r"\((?:unsigned )?(?:int|long|bool|char|short|long long)\)(?=[-\w])")
_TRUTH = {"true": "1", "false": "0"}
_WORD = re.compile(r"\b(?:true|false)\b")
_SIGN = re.compile(r"(?<=\d)(?:ull|ul|u|ll|l)\b", re.IGNORECASE)


def join_counters(recording: Recording, counters: Recording) -> tuple[Recording, int, int]:
    """``recording`` with the counters of ``counters``, how many of its kernels got some, and how many did not.

    Sets ``sm_pct``, ``dram_pct``, ``tensor_pct`` and ``source``, and ``flops`` and ``bytes`` where they were measured. A
    kernel that was seen and not measured (no sample fell into it) gives nothing, and keeps its counterpart from another's.
    Copies and sets have no counters. Notes say how many matched, how many of those by name alone, how often counters
    were repeated, and how many of the counters found no kernel.
    """
    kernels, measured = recording.kernels, counters.kernels
    target = np.flatnonzero((kernels["kind"] == "kernel").to_numpy())
    if not len(target):
        return recording, 0, 0
    ours = _keyed(kernels.iloc[target].assign(row=target))
    theirs = _keyed(measured.assign(row=np.arange(len(measured))))
    if measured["device"].nunique() < 2:
        # Counters of one device stand for all that ran the same kernels.
        theirs["device"] = ""
        ours["lane"] = ours["device"]
        ours["device"] = ""
    else:
        ours["lane"] = ""
    pair = np.full(len(kernels), NONE, np.int64)
    _pair(pair, ours, theirs, ["device", "full", "grid", "block"])
    same_launch = pair >= 0
    _pair(pair, ours, theirs, ["device", "full"])
    _pair_bare(pair, ours, theirs)
    something = measured[[*_COPIED, *_MEASURED]].notna().any(axis=1).to_numpy()
    hit = np.flatnonzero(pair >= 0)
    hit = hit[something[pair[hit]]]
    matched = len(hit)
    frame = kernels.copy(deep=False)
    for name in (*_COPIED, *_MEASURED):
        values = frame[name].to_numpy(copy=True)
        new = measured[name].to_numpy()[pair[hit]]
        known = np.isfinite(new)
        values[hit[known]] = new[known]
        frame[name] = values
    frame["source"] = _sources(kernels, measured, pair, hit)
    tool = counters.origin.tool or "Nsight Compute"
    notes = _notes(pair, hit, same_launch, len(target), int(something.sum()), tool)
    return recording.replace(kernels=KERNELS.conform(frame)).with_notes(*notes), matched, len(target) - matched


def _notes(pair: Ints, hit: Ints, same_launch: np.ndarray, kernels: int, measured: int, tool: str) -> list[Note]:
    used = np.unique(pair[hit])
    notes = [Note("ncu_matched", f"counters from {tool} by name and order, for kernels out of {kernels:,}", len(hit))]
    if len(hit) < kernels:
        notes.append(Note("ncu_unmatched", f"kernels that {tool} has no counters for", kernels - len(hit)))
    by_name = int(np.count_nonzero(~same_launch[hit]))
    if by_name:
        text = "kernels with counters of a launch of other dimensions, or of a name spelled differently"
        notes.append(Note("ncu_by_name", text, by_name))
    if len(hit) > len(used):
        text = "kernels with counters of an earlier occurrence (fewer were measured than recorded)"
        notes.append(Note("ncu_repeated", text, len(hit) - len(used)))
    if len(used) < measured:
        notes.append(Note("ncu_unused", f"measurements of {tool} that no kernel here goes with", measured - len(used)))
    return notes


def _sources(kernels: pd.DataFrame, measured: pd.DataFrame, pair: Ints, hit: Ints) -> pd.Categorical:
    """The counters' own source (``ncu``, ``cupti``) where a percentage was measured; what it was elsewhere."""
    old = kernels["source"].astype(object).to_numpy(copy=True)
    percent = measured[list(_COPIED)].notna().any(axis=1).to_numpy()
    got = hit[percent[pair[hit]]]
    old[got] = measured["source"].astype(object).to_numpy()[pair[got]]
    return pd.Categorical(old)


def _keyed(frame: pd.DataFrame) -> pd.DataFrame:
    """Row, device, begin, launch and the two evened-out names of each kernel, in order of begin."""
    names = frame["name"].cat
    full = np.array([_even(str(name)) for name in names.categories], dtype=object)
    bare = np.array([name.split("<", 1)[0] for name in full], dtype=object)
    codes = names.codes.to_numpy()
    table = pd.DataFrame(
        {
            "row": frame["row"].to_numpy(),
            "device": frame["device"].astype(object).to_numpy(),
            "start": frame["start_ns"].to_numpy(),
            "full": full[codes],
            "bare": bare[codes],
            "grid": frame["grid"].astype(object).to_numpy(),
            "block": frame["block"].astype(object).to_numpy(),
            "threads": frame["threads"].to_numpy(),
        }
    )
    return table.sort_values("start", kind="stable", ignore_index=True)


def _even(name: str) -> str:
    """A kernel's name without what tools spell differently; template arguments stay, parameters go."""
    name = _ANONYMOUS.sub("", name)
    name = _CAST.sub("", name)
    name = _WORD.sub(lambda found: _TRUTH[found[0]], _without_parameters(name))
    name = name.removeprefix("void ").strip()
    return _SIGN.sub("", name.replace(" ", ""))


def _without_parameters(name: str) -> str:
    """The name up to the parameter list: the first parenthesis outside of template arguments."""
    depth = 0
    for place, letter in enumerate(name):
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth = max(depth - 1, 0)
        elif letter == "(" and not depth and place:
            return name[:place]
    return name


def _pair(pair: Ints, ours: pd.DataFrame, theirs: pd.DataFrame, keys: list[str]) -> None:
    """Pair by equal keys in order of occurrence, repeating; only rows of ours without a pair."""
    open_rows = ours[pair[ours["row"].to_numpy()] < 0]
    if open_rows.empty or theirs.empty:
        return
    counted = theirs.assign(place=theirs.groupby(keys, sort=False).cumcount())
    sizes = counted.groupby(keys, sort=False).size().rename("size").reset_index()
    wanted = open_rows.assign(occurrence=open_rows.groupby([*keys, "lane"], sort=False).cumcount())
    wanted = wanted[["row", "occurrence", *keys]].merge(sizes, on=keys, how="inner")
    wanted["place"] = wanted["occurrence"] % wanted["size"]
    found = wanted.merge(counted[["row", "place", *keys]], on=[*keys, "place"], suffixes=("", "_theirs"))
    pair[found["row"].to_numpy()] = found["row_theirs"].to_numpy()


def _pair_bare(pair: Ints, ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    """Pair by bare names where that is no guess (see the module's text)."""
    open_rows = ours[pair[ours["row"].to_numpy()] < 0]
    kinds_theirs = theirs.groupby("bare")["full"].nunique()
    kinds_ours = ours.groupby("bare")["full"].nunique()
    shared = kinds_theirs.index.intersection(kinds_ours.index)
    single = shared[(kinds_theirs[shared] == 1) & (kinds_ours[shared] == 1)]
    _pair(pair, open_rows[open_rows["bare"].isin(single)], theirs[theirs["bare"].isin(single)], ["device", "bare"])
    # A name that is whole on our side too means that kernel, not the templates of the same bare name.
    bare_only = theirs[(theirs["full"] == theirs["bare"]) & ~theirs["full"].isin(ours["full"])]
    bare_only = bare_only[bare_only["bare"].isin(shared.difference(single))]
    candidates = open_rows[open_rows["bare"].isin(bare_only["bare"])]
    measured = dict(list(bare_only.groupby(["device", "bare"], sort=False)))
    for (device, bare, _lane), rows in candidates.groupby(["device", "bare", "lane"], sort=False):
        other = measured.get((device, bare))
        if other is None or len(rows) % len(other):
            continue
        times = len(rows) // len(other)
        if np.array_equal(rows["threads"].to_numpy(), np.tile(other["threads"].to_numpy(), times)):
            pair[rows["row"].to_numpy()] = np.tile(other["row"].to_numpy(), times)
