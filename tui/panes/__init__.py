"""The tabs, in their order. One module a question."""

from __future__ import annotations

from tui.panes.advice import AdvicePane
from tui.panes.base import Pane
from tui.panes.device import DevicePane
from tui.panes.gemms import GemmsPane
from tui.panes.log import LogPane
from tui.panes.ranks import RanksPane
from tui.panes.roofline import RooflinePane
from tui.panes.states import StatesPane
from tui.panes.tables import (
    BoundPane,
    CommunicationPane,
    ExpansionPane,
    FusionPane,
    GroupsPane,
    IdlePane,
    KernelsPane,
    NotesPane,
    OperatorsPane,
    RunLengthsPane,
    SharesPane,
    SummaryPane,
    TimelinePane,
    TransitionsPane,
)
from tui.panes.tail import TailPane
from tui.panes.utilization import UtilizationPane
from tui.panes.whatif import WhatIfPane

PANES: tuple[type[Pane], ...] = (
    KernelsPane,
    OperatorsPane,
    GroupsPane,
    GemmsPane,
    StatesPane,
    TailPane,
    IdlePane,
    WhatIfPane,
    DevicePane,
    LogPane,
    AdvicePane,
    RanksPane,
    RooflinePane,
    FusionPane,
    BoundPane,
    ExpansionPane,
    CommunicationPane,
    SummaryPane,
    SharesPane,
    UtilizationPane,
    TransitionsPane,
    RunLengthsPane,
    TimelinePane,
    NotesPane,
)

__all__ = ["PANES", "Pane"]
