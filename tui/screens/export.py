"""Write exactly the table on screen to a path that the person sees before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from profilers.analysis.registry import Table
from tui.export import EXTENSIONS, ExportError, save, write
from tui.widgets.choices import Choice, Choices

if TYPE_CHECKING:
    import pandas as pd

    from tui.app import KernelscopeApp

SVG = "svg"
FORMATS = ("csv", "parquet", "json", "markdown", "latex", "html")


class ExportScreen(ModalScreen[None]):
    """Format and path; an existing file is asked about, never replaced silently."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back", id="export.back"),
        Binding("ctrl+s", "write", "Write", id="export.write"),
    ]
    app: KernelscopeApp  # type: ignore[assignment]

    def __init__(self, exported: tuple[Table, pd.DataFrame] | None, name: str) -> None:
        super().__init__()
        self.exported_table = exported
        self.file_name = name
        self._confirmed = ""

    def compose(self) -> ComposeResult:
        formats = (*FORMATS, SVG) if self.exported_table else (SVG,)
        with Vertical(classes="dialog") as box:
            box.border_title = "Export"
            yield Static(self._what(), classes="hint", markup=False, id="export-what")
            yield Choices([Choice("format", "format", formats, formats[0])])
            yield Static("path", classes="label")
            yield Input(str(Path.cwd() / (self.file_name + EXTENSIONS.get(formats[0], ".svg"))), id="path")
            yield Static("", classes="error", id="export-error", markup=False)
            yield Static(
                "enter in the path, or [@click=screen.write]ctrl+s, writes[/] · [@click=screen.dismiss]escape goes back[/]",
                classes="hint",
            )

    def on_mount(self) -> None:
        self.query_one(Choices).focus()

    def _what(self) -> str:
        if self.exported_table is None:
            return "This tab has no table; the screen can be written as a picture."
        table, frame = self.exported_table
        return f"{table.name}: {len(frame):,} rows as shown (filter and order included), all {len(table.columns)} columns; svg: the screen."

    @on(Choices.Changed)
    def _format(self, message: Choices.Changed) -> None:
        box = self.query_one("#path", Input)
        box.value = str(Path(box.value).with_suffix(EXTENSIONS.get(message.value, ".svg")))

    @on(Choices.Done)
    def _done(self) -> None:
        self.query_one("#path", Input).focus()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_write()

    def action_write(self) -> None:
        format = self.query_one(Choices).value("format")
        target = Path(self.query_one("#path", Input).value).expanduser()
        force = self._confirmed == str(target)
        try:
            if target.exists() and not force:
                self._confirmed = str(target)
                raise ExportError(f"{target} exists. Press enter again to replace it, or choose another path.")
            if format == SVG:
                done: Path = save(self._picture().encode(), target, force=force)
            else:
                assert self.exported_table is not None
                table, frame = self.exported_table
                view = self.app.view
                written = write(frame, table, format, target, meta={"title": view.title} if view else {}, force=force)
                assert isinstance(written, Path)
                done = written
        except (ExportError, OSError) as problem:
            self.query_one("#export-error", Static).update(str(problem))
            return
        self.dismiss()
        self.app.notify(f"Written to {done}")

    def _picture(self) -> str:
        """The screen below this dialog, as SVG."""
        from tui.export.picture import screen_svg

        return screen_svg(self.app.screen_stack[-2])
