"""What a person sees before the first run: what to do, and what this machine has."""

from __future__ import annotations

from rich.segment import Segment

from tui.widgets.lines import Lines


class Welcome(Lines):
    """The first page. Says what the next key press does."""

    DEFAULT_CSS = "Welcome { height: 1fr; }"

    looked = False
    """Whether the runs folder has been looked into: before that nobody knows that there are none."""

    def build(self, width: int) -> list[list[Segment]]:
        p = self.palette
        key = p.style(p.group("matmul"), bold=True)
        text, muted = p.style(p.text), p.style(p.muted)
        if not self.looked:
            return [[Segment(f"looking for runs {p.mark('ellipsis')}", muted)]]
        return [
            [Segment("No runs yet.", p.style(p.text, bold=True))],
            [],
            [Segment("  n ", key), Segment("pick models and devices, and watch where the time goes", text)],
            [Segment("  o ", key), Segment("open a recording: torch.profiler, Nsight Systems, Nsight Compute", text)],
            [Segment("  ? ", key), Segment("help for what has the focus", text)],
            [Segment("  q ", key), Segment("leave; runs go on without the screen", text)],
            [],
            [Segment("From the command line:", muted)],
            [Segment("  kernelscope run gpt2 --device auto", text)],
            [Segment("  kernelscope import trace.json.gz", text)],
        ]
