"""The command palette (ctrl+p): every action by name, built from what can be done now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider

from profilers.analysis.registry import TABLES
from tui.themes import THEMES

if TYPE_CHECKING:
    from tui.panes import Pane


class Commands(Provider):
    """Tabs, runs, actions and themes as ``group: verb``."""

    def _commands(self) -> Iterator[tuple[str, str, str]]:
        from tui.app import KernelscopeApp
        from tui.panes import PANES

        app = self.app
        assert isinstance(app, KernelscopeApp)
        yield "run: new", "app.new_run", "Pick models and devices, start profiling"
        yield "file: open a recording", "app.open_file", "torch.profiler, Nsight Systems, Nsight Compute"
        view = app.view
        if view is not None:
            yield "table: export", "app.export", "Write the table as it is shown, or the screen as SVG"
            yield "table: copy", "app.copy(True)", "The whole table as it is shown"
            yield "run: compare", "app.compare", "With another run or recording"
            if view.status.live:
                yield f"run: stop {view.title}", "app.stop_run", "Asks first"
                yield (
                    f"run: pause {view.title}, or let it go on",
                    "app.pause_run",
                    "Between two steps; its device stays",
                )
                if view.status.state == "queued":
                    yield f"run: {view.title} first", "app.run_first", "Before the others that wait"
            else:
                yield f"run: delete {view.title}", "app.delete_run", "Asks first"
        for kind in PANES:
            yield f"tab: {kind.title}", f"screen.tab('{kind.name_}')", question(kind)
        if app.options.attention_as_gemm:
            yield "option: count attention on its own", "app.toggle_attention", "Fused attention is not added to GEMM"
        else:
            yield "option: count attention as GEMM", "app.toggle_attention", "As NonGEMM Bench does"
        for theme in THEMES:
            if theme != app.theme:
                yield f"theme: {theme}", f"app.set_theme('{theme}')", "ansi themes use the terminal's own colours"
        yield "app: help", "app.help", "For what has the focus"
        yield "app: quit", "app.leave", "Runs go on"

    async def discover(self) -> Hits:
        for name, action, help_text in self._commands():
            yield DiscoveryHit(name, self._runner(action), help=help_text)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, action, help_text in self._commands():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, matcher.highlight(name), self._runner(action), help=help_text)

    def _runner(self, action: str):  # type: ignore[no-untyped-def]
        async def run() -> None:
            await self.app.run_action(action, self.app.screen)

        return run


def question(kind: type[Pane]) -> str:
    """What a tab answers, in one line."""
    table = TABLES.get(getattr(kind, "table_name", ""))
    if table is not None:
        return table.question
    first = kind.help.strip().split(".")[0].replace("*", "").replace("`", "")
    return " ".join(first.split()) + "."
