"""What every analysis needs of a recording, worked out once: which activities count, on which device, of which class.

A flagged activity (its duration is not believed) counts nowhere; ``summary`` says how many there are. Copies and sets
keep a device busy but are no kernels: shares of kernel time leave them out.
"""

from __future__ import annotations

import re
import weakref
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from profilers.analysis import intervals
from profilers.analysis.options import Options
from profilers.rules.taxonomy import ATTENTION, CLASSES, COMMUNICATION, GEMM, UNCLASSIFIED
from profilers.tables import NONE, Recording

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

GEMM_CODE = CLASSES.index(GEMM)
ATTENTION_CODE = CLASSES.index(ATTENTION)
COMMUNICATION_CODE = CLASSES.index(COMMUNICATION)


_WRAPPER = re.compile(
    r"Torch-Compiled Region|CompiledFunction|## Call CompiledFxGraph|torch::autograd::CompiledFunction"
)
"""How PyTorch names what compiled code runs in."""


def recode(column: pd.Series, wanted: tuple[str, ...], other: str) -> npt.NDArray[np.int8]:
    """A categorical column as positions in ``wanted``; anything else counts as ``other``."""
    fallback = wanted.index(other)
    codes = [wanted.index(c) if c in wanted else fallback for c in column.cat.categories]
    table = np.array([*codes, fallback], np.int8)
    return np.asarray(table[column.cat.codes.to_numpy()], np.int8)


def equals(column: pd.Series, value: str) -> Bools:
    """Where a categorical column has this value."""
    categories = column.cat.categories
    code = categories.get_loc(value) if value in categories else -2
    return np.asarray(column.cat.codes.to_numpy() == code)


def is_cpu(device: str) -> bool:
    """Whether a device's name means the host's processors."""
    return device.rsplit("/", 1)[-1].startswith("cpu")


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts cuda:10 behind cuda:9."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text) if part)


def pct(part: float, whole: float) -> float:
    """``part`` in percent of ``whole``; 0 of nothing is 0."""
    return 100.0 * part / whole if whole else 0.0


class View:
    """The believed activities of one recording as arrays (one entry per row of ``recording.kernels``)."""

    def __init__(self, recording: Recording) -> None:
        # The recording itself is not held: the cache below lives as long as the recording does.
        self.kernels = recording.kernels
        self.operators = recording.operators
        self.steps = recording.steps
        frame = self.kernels
        self.believed: Bools = equals(frame["flag"], "")
        self.is_kernel: Bools = self.believed & equals(frame["kind"], "kernel")
        self.start: Ints = frame["start_ns"].to_numpy()
        self.dur: Ints = frame["dur_ns"].to_numpy()
        self.cls = recode(frame["class"], CLASSES, UNCLASSIFIED)
        column = frame["device"].cat.remove_unused_categories()
        self.devices: tuple[str, ...] = tuple(sorted((str(c) for c in column.cat.categories), key=natural))
        self.device = recode_all(column, self.devices)
        self._windows: dict[int, tuple[Ints, Ints]] = {}
        self._segments: dict[int, tuple[Ints, Ints, Ints]] = {}
        self._wall_shares: dict[int, tuple[Floats, float]] = {}

    @cached_property
    def rows(self) -> Ints:
        """Rows of believed kernels (no copies, no sets), as recorded."""
        return np.flatnonzero(self.is_kernel)

    @cached_property
    def in_time(self) -> Ints:
        """The same in order of device and start."""
        rows = self.rows
        rows = rows[np.argsort(self.start[rows], kind="stable")]
        return rows[np.argsort(self.device[rows], kind="stable")] if len(self.devices) > 1 else rows

    def gemm_like(self, options: Options) -> Bools:
        """Rows whose class counts as GEMM: attention only where the option says so."""
        mask = self.cls == GEMM_CODE
        return mask | (self.cls == ATTENTION_CODE) if options.attention_as_gemm else mask

    def time_ns(self, mask: Bools) -> int:
        """Kernel time of the rows in ``mask`` (only believed kernels count)."""
        return int(self.dur[mask & self.is_kernel].sum())

    @cached_property
    def operator_row(self) -> Ints:
        """Row in ``operators`` of the innermost operator that launched each activity (-1: none is known)."""
        return positions(self.operators["op_id"].to_numpy(), self.kernels["op_id"].to_numpy())

    @cached_property
    def parent_row(self) -> Ints:
        """Row in ``operators`` of each operator's caller (-1: none)."""
        return positions(self.operators["op_id"].to_numpy(), self.operators["parent_id"].to_numpy())

    @cached_property
    def outermost(self) -> Ints:
        """Row of the outermost dispatched operator (``aten::...``; not an autograd node) around each operator, itself
        included (-1: there is none, as for an autograd node itself)."""
        names = self.operators["name"]
        dispatched = ["::" in str(n) and not str(n).startswith(("autograd::", "torch::")) for n in names.cat.categories]
        own = np.where(np.array([*dispatched, False])[names.cat.codes.to_numpy()], np.arange(len(names)), NONE)
        depth = self.operators["depth"].to_numpy()
        for level in range(1, int(depth.max(initial=0)) + 1):
            rows = np.flatnonzero((depth == level) & (self.parent_row >= 0))
            above = own[self.parent_row[rows]]
            own[rows] = np.where(above >= 0, above, own[rows])
        return own

    @cached_property
    def below_the_step(self) -> tuple[Ints, Ints]:
        """The operators directly below the step: their rows, and the host + device time (ns) that each accounts for.

        The wrappers that compiled code runs in (a compiled region and its guards) are looked through: the operators in
        them count as called by the step, and a wrapper keeps only the time that is its own.
        """
        ops = self.operators
        wraps = np.r_[[_WRAPPER.match(str(name)) is not None for name in ops["name"].cat.categories], False].astype(
            bool
        )
        wrapper = wraps[ops["name"].cat.codes.to_numpy()]
        depth = ops["depth"].to_numpy()
        top = depth == 0
        for level in range(1, int(depth.max(initial=0)) + 1 if wrapper.any() else 0):
            rows = np.flatnonzero((depth == level) & (self.parent_row >= 0))
            above = self.parent_row[rows]
            top[rows] = top[above] & wrapper[above]
        rows = np.flatnonzero(top)
        device = ops["device_ns"].to_numpy()
        called = self.parent_row >= 0
        below = np.bincount(self.parent_row[called], device[called], minlength=len(ops)).astype(np.int64)
        whole = ops["dur_ns"].to_numpy() + device
        own = ops["self_ns"].to_numpy() + np.maximum(device - below, 0)
        return rows, np.where(wrapper, own, whole)[rows]

    @cached_property
    def _cpu_segments(self) -> tuple[Ints, Ints, Ints]:
        """The innermost-operator stretches of the host's threads, as rows of ``kernels``."""
        ops = self.operators
        ids = ops["op_id"].to_numpy()
        start = ops["start_ns"].to_numpy()
        begin, end, owner = intervals.innermost(
            start,
            start + ops["dur_ns"].to_numpy(),
            self.parent_row,
            ops["depth"].to_numpy(),
            ops["thread_id"].to_numpy(),
        )
        cpu = np.array([is_cpu(device) for device in self.devices] + [False])
        mine = np.flatnonzero(self.believed & cpu[self.device])
        row_of = np.full(len(ops) + 1, NONE, np.int64)
        row_of[positions(ids, self.kernels["op_id"].to_numpy()[mine])] = mine
        row = row_of[owner]
        keep = row >= 0
        return begin[keep], end[keep], row[keep]

    def segments(self, device: int) -> tuple[Ints, Ints, Ints]:
        """When which activity ran on a device: ``start, end, row``. On a CPU the stretches of self time."""
        if device not in self._segments:
            self._segments[device] = self._found_segments(device)
        return self._segments[device]

    def _found_segments(self, device: int) -> tuple[Ints, Ints, Ints]:
        if is_cpu(self.devices[device]) and len(self.operators):
            begin, end, row = self._cpu_segments
            keep = self.device[row] == device
            return begin[keep], end[keep], row[keep]
        row = np.flatnonzero(self.believed & (self.device == device))
        return self.start[row], self.start[row] + self.dur[row], row

    def span(self, device: int) -> tuple[int, int]:
        """First start and last end of what ran on a device (0, 0: nothing)."""
        begin, end, _ = self.segments(device)
        return (int(begin.min()), int(end.max())) if begin.size else (0, 0)

    def threads(self, device: int) -> Ints:
        """The host threads whose operators launched on a device; empty where no operator is known. Threads are unique
        over the processes of a recording, so they tell the ranks read together apart."""
        rows = self.operator_row[self.believed & (self.device == device)]
        return np.unique(self.operators["thread_id"].to_numpy()[rows[rows >= 0]])

    def device_steps(self, device: int) -> pd.DataFrame:
        """The steps of the threads that launched on a device; all steps where none of those drives any."""
        own = np.isin(self.steps["thread_id"].to_numpy(), self.threads(device))
        return self.steps[own] if own.any() else self.steps

    def windows(self, device: int) -> tuple[Ints, Ints]:
        """The intervals of a device's steps, joined; no steps: empty."""
        if device not in self._windows:
            steps = self.device_steps(device)
            start = steps["start_ns"].to_numpy()
            self._windows[device] = intervals.union(start, start + steps["dur_ns"].to_numpy())
        return self._windows[device]

    def wall(self, device: int) -> tuple[Ints, Ints]:
        """The intervals whose every instant is accounted for: the steps, or the device's span where there are none."""
        if self.windows(device)[0].size:
            return self.windows(device)
        low, high = self.span(device)
        return np.array([low], np.int64), np.array([high], np.int64)

    def wall_share(self, device: int) -> tuple[Floats, float]:
        """Nanoseconds of wall time that fall to each row (instants with several divided equally), and the wall time."""
        if device not in self._wall_shares:
            self._wall_shares[device] = self._found_wall_share(device)
        return self._wall_shares[device]

    def _found_wall_share(self, device: int) -> tuple[Floats, float]:
        begin, end, row = self.segments(device)
        wall = self.wall(device)
        share = intervals.sharing(begin, end, wall).share(begin, end)
        of_row: Floats = np.bincount(row, share, minlength=len(self.kernels)).astype(np.float64)
        return of_row, float((wall[1] - wall[0]).sum())


def recode_all(column: pd.Series, wanted: tuple[str, ...]) -> npt.NDArray[np.int32]:
    """A categorical column as positions in ``wanted``, which holds all its categories; no value: -1."""
    place = {name: index for index, name in enumerate(wanted)}
    table = np.array([place[str(c)] for c in column.cat.categories] + [-1], np.int32)
    return np.asarray(table[column.cat.codes.to_numpy()], np.int32)


def positions(ids: Ints, wanted: Ints) -> Ints:
    """Row of each wanted id (-1: not there). Fast where ids are 0, 1, 2 ..., right for any."""
    size = ids.size
    if not size:
        return np.full(len(wanted), NONE, np.int64)
    if ids[0] == 0 and ids[-1] == size - 1 and np.array_equal(ids, np.arange(size)):
        return np.where((wanted >= 0) & (wanted < size), wanted, NONE)
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids[order], wanted), size - 1)
    row = order[place]
    return np.where(ids[row] == wanted, row, NONE)


_VIEWS: weakref.WeakKeyDictionary[Recording, View] = weakref.WeakKeyDictionary()


def view(recording: Recording) -> View:
    """The view of a recording; worked out at the first call and kept as long as the recording."""
    held = _VIEWS.get(recording)
    if held is None:
        held = _VIEWS[recording] = View(recording)
    return held
