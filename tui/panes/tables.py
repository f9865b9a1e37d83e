"""Panes that are one table each."""

from __future__ import annotations

from typing import ClassVar

from tui.panes.base import TablePane


class KernelsPane(TablePane):
    name_ = "kernels"
    title = "Kernels"
    table_name = "kernels"
    help: ClassVar[str] = """
Every distinct kernel with its calls and its time. **% kernel time** is of the sum over all kernels of the device;
**Σ %** adds up from the largest down: it shows how long the tail is. On a CPU a kernel is an operator, by self time.

The short name says library, operation, type and tile. `enter` shows the whole name, the operators that launch it with their
shapes, and when it ran. **state** is where this kernel spends most of its time (threads, SM, DRAM: L, M or H).
"""


class OperatorsPane(TablePane):
    name_ = "operators"
    title = "Operators"
    table_name = "operators"
    help: ClassVar[str] = """
Every operator with its own time on the host (**self**, children left out), the time of the kernels that it launched
(**device**), and its whole time on the host. The percentage is of host self time + device time of all operators.
`enter` shows the kernels that it expands to.
"""


class GroupsPane(TablePane):
    name_ = "groups"
    title = "Groups"
    table_name = "groups"
    help: ClassVar[str] = """
Kernel time by group: matrix multiply and convolution first, then what is not. `kernelscope show RUN groups --why` names the
line of the rules that decided for each kernel. Unclassified kernels stay visible: nothing is folded away.
"""


class BoundPane(TablePane):
    name_ = "bound"
    title = "Bound"
    table_name = "bound"
    empty = "Nothing can be computed: no shapes were recorded (record_shapes=True records them)."
    help: ClassVar[str] = """
The least time of one step on every device of the peaks table: computed from shapes, not measured. Each kernel takes at least
the greater of its operations over the peak of its type and its bytes over the memory bandwidth. **compute ms** and **memory
ms** are what fusing everything could come down to. **fits** compares a step's memory, where it was estimated
(`kernelscope run MODEL --device meta`), with the device's.
"""


class IdlePane(TablePane):
    name_ = "idle"
    title = "Idle"
    table_name = "idle"
    empty = "The device was never idle between its first kernel and its last."
    help: ClassVar[str] = """
Gaps in which the device ran nothing, by cause: the host had not launched yet (launch-bound), fetched the next batch (data
loading) or waited in a synchronisation; the device waited for another stream or for communication; the step began or ended.
"""


class ExpansionPane(TablePane):
    name_ = "expansion"
    title = "Expansion"
    table_name = "expansion"
    help: ClassVar[str] = """
Into how many kernels each operator expands: the study's road from 185 operators to 744 kernels.
"""


class CommunicationPane(TablePane):
    name_ = "communication"
    title = "Comms"
    table_name = "communication"
    empty = "No collective or transfer between devices was recorded."
    help: ClassVar[str] = """
Collectives and transfers between devices. **Exposed** is the time in which the device ran nothing else.
"""


class NotesPane(TablePane):
    name_ = "notes"
    title = "Notes"
    table_name = "notes"
    empty = "Nothing was dropped, repaired or assumed."
    help: ClassVar[str] = """
What was dropped, repaired, not attributed or assumed, with counts. Nothing is left out silently.
"""


class SummaryPane(TablePane):
    name_ = "summary"
    title = "Summary"
    table_name = "summary"
    help: ClassVar[str] = """
One row a device: kernels, busy time (the union over kernels, copies and sets), span, idle time, and the shares of kernel time.
"""


class SharesPane(TablePane):
    name_ = "shares"
    title = "Shares"
    table_name = "shares"
    help: ClassVar[str] = """
The numbers behind the three bars at the top: each share of each device adds up to 100 % of what **of** says.
"""


class TimelinePane(TablePane):
    name_ = "timeline"
    title = "Timeline"
    table_name = "timeline"
    help: ClassVar[str] = """
The recording cut into equal slices: which class and which state had most of each, and how busy the device was.
"""


class TransitionsPane(TablePane):
    name_ = "transitions"
    title = "Transitions"
    table_name = "transitions"
    empty = "The chip never changed its state."
    help: ClassVar[str] = """
Which state follows which, counted over consecutive kernels of a device in order of time.
"""


class RunLengthsPane(TablePane):
    name_ = "runlengths"
    title = "Run lengths"
    table_name = "runlengths"
    help: ClassVar[str] = """
How many kernels in a row stay in one state. The study found one or two on average.
"""


class FusionPane(TablePane):
    name_ = "fusion"
    title = "Fusion"
    table_name = "fusion"
    empty = "Nothing was compiled: --backend inductor runs through torch.compile and says what it fuses."
    help: ClassVar[str] = """
What compiled kernels hold, by the compiler's own word. The study's rule makes a kernel GEMM when any GEMM is inside; beside it
stands the proportional split: the kernel's time divided by what the operators inside would take alone (estimated).
"""
