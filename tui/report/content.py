"""What a report holds, whatever it is written as: facts on the run, and sections of one table each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profilers.analysis.options import Options
from profilers.analysis.registry import TABLES, Table
from profilers.rules.names import visible
from profilers.runs.folder import RunFolder
from profilers.runs.status import Status
from profilers.tables import Recording
from tui import format as fmt
from tui.headers import shares_of, strip_of_view
from tui.report.telemetry import NOTHING, TELEMETRY, Telemetry, telemetry
from tui.snapshot import Query, RunView
from tui.widgets.shares import Share
from tui.widgets.state_strip import StripData

if TYPE_CHECKING:
    import pandas as pd

SECTIONS = (
    ("advice", "Next"),
    ("summary", "Summary"),
    ("shares", "Shares"),
    ("groups", "Groups"),
    ("kernels", "Kernels"),
    ("operators", "Operators"),
    ("gemms", "GEMMs"),
    ("states", "States"),
    ("coverage", "Tail"),
    ("idle", "Idle"),
    ("whatif", "What-if"),
    ("roofline_groups", "Roofline"),
    ("roofs", "Roofs"),
    ("roofline", "Roofline by kernel"),
    ("communication", "Communication"),
    ("ranks", "Ranks"),
    ("notes", "Notes"),
)
"""Table and heading, in order; a table without rows is left out, and the one of ranks where there is but one."""

_ROOFLINES = ("roofline_groups", "roofline")

NO_ROOFLINE = "No kernel's operations or bytes are known (no recorded shapes, no counters): there is no roofline."

_PICTURES = ("shares_by_group", "timeline")


@dataclass(frozen=True)
class Section:
    """One table, whole and in its order. Writers may show fewer rows; they then say of how many."""

    heading: str
    table: Table
    frame: pd.DataFrame


@dataclass(frozen=True)
class Content:
    """Everything of a report. ``facts``: (label, value). ``shares`` and ``strip`` are the pictures of the screen's head;
    ``of`` says what each share is of, ``states_how`` where the states come from."""

    title: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    shares: tuple[Share, ...] = ()
    strip: StripData = field(default_factory=StripData)
    of: Mapping[str, str] = field(default_factory=dict)
    states_how: str = ""
    telemetry: Telemetry = field(default_factory=Telemetry)
    devices: tuple[tuple[str, str], ...] = ()
    """(id, name) of the devices that are known by name."""

    @property
    def missing(self) -> tuple[str, ...]:
        """A line for each picture that there is nothing for, and why."""
        lines = []
        if self.section(_ROOFLINES[0]) is None:
            lines.append(NO_ROOFLINE)
        if not self.telemetry.curves:
            lines.append(NOTHING)
        return tuple(lines)

    def section(self, table: str) -> Section | None:
        return next((section for section in self.sections if section.table.name == table), None)

    def frame(self, table: str) -> pd.DataFrame:
        """The rows of a section's table; none where the section was left out for having none."""
        import pandas as pd

        found = self.section(table)
        columns = [column.name for column in TABLES[table].columns]
        return found.frame if found is not None else pd.DataFrame(columns=columns)


def content(recording: Recording, title: str, run: RunFolder | None, options: Options) -> Content:
    """The report's content, from the same tables as every pane."""
    frames = {name: TABLES[name].compute(recording, options) for name in (*dict(SECTIONS), *_PICTURES)}
    view = RunView(
        "",
        title,
        0,
        Status(),
        tables={Query(name): frame for name, frame in frames.items()},
        attention_as_gemm=options.attention_as_gemm,
    )
    sections = [Section(head, TABLES[name], _ordered(TABLES[name], frames[name])) for name, head in SECTIONS]
    sampled = telemetry(run, recording)
    if sampled.curves:
        sections.insert(-1, Section("Telemetry", TELEMETRY, sampled.frame()))
    facts = (*_run_facts(run), *_recording_facts(recording, run), *_options_facts(options))
    return Content(
        visible(title),
        tuple((label, visible(value)) for label, value in facts if value),
        tuple(section for section in sections if _says_something(section)),
        shares_of(view),
        strip_of_view(view),
        {str(name): str(of) for name, of in zip(frames["shares"]["share"], frames["shares"]["of"], strict=True)},
        _states_how(frames["states"]),
        sampled,
        tuple((visible(device.id), visible(device.name)) for device in recording.devices if device.name),
    )


def _says_something(section: Section) -> bool:
    """Whether a section is more than its heading: rows, several of them for ranks, and figures in them for rooflines."""
    if section.table.name in _ROOFLINES:
        return bool(section.frame[["tflops_per_s", "gb_per_s"]].notna().any(axis=None))
    return len(section.frame) > (section.table.name == "ranks")


def _states_how(states: pd.DataFrame) -> str:
    found = {part for source in states["source"] for part in str(source).split("+")} - {"none"}
    if not found:
        return "threads alone: neither counters, nor shapes with a known peak, tell SM % and DRAM %"
    if found == {"estimate"}:
        return "estimated from shapes and the device's peaks"
    return "in part from counters, in part estimated" if "estimate" in found else "from counters"


def _ordered(table: Table, frame: pd.DataFrame) -> pd.DataFrame:
    """In the order that the screen opens it in."""
    if not table.sort:
        return frame
    return frame.sort_values(table.sort, ascending=not table.descending, kind="stable", ignore_index=True)


def _run_facts(run: RunFolder | None) -> list[tuple[str, str]]:
    if run is None:
        return []
    spec, status = run.spec(), run.status()
    if spec.target == "import":
        return []
    words = [spec.workload, spec.mode, spec.dtype, f"batch {spec.batch}", f"sequence {spec.seq}" if spec.seq else ""]
    facts = [("run", run.id), ("workload", " · ".join(word for word in (*words, spec.backend) if word))]
    if status.step_ms is not None:
        spread = f" ± {fmt.significant(status.step_ms_spread)}" if status.step_ms_spread is not None else ""
        median = f"{fmt.significant(status.step_ms)}{spread} ms"
        facts.append(
            ("step without the profiler", f"{median} (median of {status.steps_timed}, half the interquartile range)")
        )
    if status.parameters:
        facts.append(("parameters", fmt.amount(status.parameters)))
    facts.append(("software", _software(run)))
    if status.started:
        facts.append(("started", fmt.moment(status.started)))
    return facts


def _software(run: RunFolder) -> str:
    """The versions that a step's time depends on."""
    machine = run.machine()
    versions = machine.get("versions")
    held = versions if isinstance(versions, dict) else {}
    words = [f"{name} {held[name]}" for name in ("torch", "transformers", "kernelscope") if held.get(name)]
    named = (("Python", "python"), ("driver", "driver"), ("", "system"))
    return " · ".join([*words, *(f"{name} {machine[key]}".strip() for name, key in named if machine.get(key))])


def _recording_facts(recording: Recording, run: RunFolder | None) -> list[tuple[str, str]]:
    origin = recording.origin
    named: dict[str, list[str]] = {}
    for device in recording.devices:
        named.setdefault(device.name, []).append(device.id)
    devices = "; ".join(f"{', '.join(ids)} ({name})" if name else ", ".join(ids) for name, ids in named.items())
    source = (
        "" if origin.kind == "run" else " · ".join(word for word in (origin.path, origin.kind, origin.tool) if word)
    )
    return [
        ("recording", source),
        ("devices", devices),
        ("recorded", f"steps: {len(recording.steps):,}, device activities: {len(recording.kernels):,}"),
    ]


def _options_facts(options: Options) -> list[tuple[str, str]]:
    return [("attention", "counted as GEMM" if options.attention_as_gemm else "counted on its own, not as GEMM")]


def shortened(section: Section, rows: int) -> pd.DataFrame:
    """The first rows with short names, unique within the whole table: for paper and pull requests."""
    from profilers.rules.names import short_names

    frame = section.frame.head(rows).copy()
    for column in section.table.columns:
        if column.format == "name":
            distinct = list(dict.fromkeys(str(name) for name in section.frame[column.name]))
            short = dict(zip(distinct, short_names(distinct), strict=True))
            frame[column.name] = [short[str(name)] for name in frame[column.name]]
    return frame
