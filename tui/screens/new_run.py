"""New run: models, devices, options, and the command that would do the same. It starts what that command would start."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from tui.format import amount
from tui.messages import RunsStarted
from tui.screens import own_code
from tui.widgets.choices import Choice, Choices
from tui.widgets.pick_list import Item, PickList

if TYPE_CHECKING:
    from apps.catalogue import Entry
    from profilers.collectors.telemetry.devices import DeviceRow
    from tui.app import KernelscopeApp


class NewRunScreen(ModalScreen[None]):
    """Every choice becomes a word of a ``kernelscope run`` command, which is shown, can be copied, and is what is started."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="new.back"),
        Binding("ctrl+s,f5", "start", "Start", id="new.start"),
        Binding("ctrl+y", "copy", "Copy the command", id="new.copy"),
        Binding("slash", "search", "Search", key_display="/", id="new.search"),
    ]
    app: KernelscopeApp  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, Entry] = {}
        self.devices: list[DeviceRow] = []
        self.own: dict[str, own_code.OwnCode] = {}
        self._busy_confirmed = ""
        self._starting = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="new-run") as box:
            box.border_title = "New run"
            # What needs no cursor can be clicked; the first words are cut where it is narrow.
            box.border_subtitle = (
                "space picks · a: whole suite · enter goes on · [@click=screen.start]ctrl+s starts[/] · "
                "[@click=screen.copy]ctrl+y copies[/]"
            )
            with Horizontal(id="new-run-body"):
                with Vertical(id="new-run-models"):
                    yield Input(placeholder="/ search, or type train.py, model.py:build, a model id", id="search")
                    yield PickList(id="models")
                with Vertical(id="new-run-side"):
                    yield Static("devices", classes="label")
                    yield PickList(id="devices")
                    yield Static("options", classes="label")
                    yield Choices(self._choices([]), id="choices")
                    yield Static("", id="about", classes="hint", markup=False)
            yield Static("", id="command", markup=False)
            yield Static("", id="new-error", classes="error", markup=False)

    def on_mount(self) -> None:
        self.set_class(self.app.size.width < 100, "-narrow")
        self._list_models()
        self.query_one("#devices", PickList).set_items([Item("auto", "auto", "looking at the devices …")])
        self.query_one("#devices", PickList).picked["auto"] = None
        self.query_one("#models", PickList).focus()
        self._show_command()
        self.look_at_devices()

    def _list_models(self) -> None:
        from apps import catalogue

        entries = {entry.name: entry for entry in catalogue.entries()}
        self.entries = entries
        items = [Item("", own_code.HEADING)] if self.own else []
        items += [own.item(key) for key, own in self.own.items()]
        for suite, names in catalogue.suites().items():
            items.append(Item("", f"{suite}"))
            for name in names:
                entry = entries[name]
                detail = f"{amount(entry.parameters)}  {entry.task}" if entry.parameters else entry.task
                items.append(
                    Item(
                        f"{suite}/{name}",
                        entry.title,
                        detail,
                        entry.missing(),
                        f"{name} {entry.doc} {' '.join(entry.aliases)}",
                    )
                )
        self.query_one("#models", PickList).set_items(items)

    @work(thread=True, group="devices", description="looking at the devices", exit_on_error=False)
    def look_at_devices(self) -> None:
        from profilers.collectors.telemetry.devices import list_devices
        from profilers.runs.leases import with_holders

        rows = with_holders(list_devices(), self.app.root)
        self.app.call_from_thread(self._list_devices, rows)

    def _list_devices(self, rows: list[DeviceRow]) -> None:
        from profilers.collectors.telemetry.devices import best_first

        if not self.is_mounted:
            return
        self.devices = rows
        box = self.query_one("#devices", PickList)
        items = []
        for row in rows:
            total = f"{row.memory_used_gb:.0f}/{row.memory_total_gb:.0f} GB" if row.memory_total_gb else ""
            use = f"{row.utilization_pct:.0f} % busy" if row.utilization_pct is not None else ""
            users = f"used by {row.users}" if row.users else ""
            detail = "  ".join(text for text in (users, use, total, row.note) if text)
            disabled = row.note if row.lost or row.kind == "amd" else ""
            items.append(Item(row.device, f"{row.device}  {row.name}", detail, disabled))
        items.append(Item("meta", "meta  no device", "shapes alone: computed, not measured"))
        box.picked.clear()
        free = [row for row in best_first(rows) if not row.busy]
        box.picked[free[0].device if free else "cpu"] = None
        box.set_items(items)
        self.query_one("#choices", Choices).set_choices(self._choices(self._picked_entries()))
        self._show_command()

    # -- choices -----------------------------------------------------------------------------------------------------

    def _picked(self) -> list[str]:
        """The words that name what is picked, each catalogue name once."""
        keys = self.query_one("#models", PickList).picked
        names = dict.fromkeys(key.split("/", 1)[1] for key in keys if key not in self.own)
        return [*names, *(word for key in keys if key in self.own for word in self.own[key].words)]

    def _picked_entries(self) -> list[Entry]:
        """The catalogue's entries among them."""
        return [self.entries[name] for name in self._picked() if name in self.entries]

    def _scripts_alone(self) -> bool:
        """Whether all that is picked are scripts: most options say nothing to one, and would be refused."""
        keys = self.query_one("#models", PickList).picked if self.is_mounted else {}
        return bool(keys) and all(key in self.own and self.own[key].script for key in keys)

    def _script_arguments(self) -> list[str]:
        """The arguments typed behind the picked scripts."""
        keys = self.query_one("#models", PickList).picked
        return [word for key in keys if key in self.own for word in self.own[key].arguments]

    def _choices(self, entries: list[Entry]) -> list[Choice]:
        """The options that all picked workloads offer; values chosen before stay where they are still offered."""
        held = {c.name: c.value for c in self.query_one("#choices", Choices).choices} if self.is_mounted else {}

        from profilers.collectors.backends import names

        def common(pick) -> tuple[str, ...]:  # type: ignore[no-untyped-def]
            lists = [list(pick(entry)) for entry in entries]
            return tuple(v for v in lists[0] if all(v in other for other in lists)) if lists else ()

        def choice(name: str, label: str, options: tuple[str, ...], hint: str = "") -> Choice:
            value = held.get(name, options[0] if options else "")
            return Choice(name, label, options, value if not options or value in options else options[0], hint)

        first = entries[0] if entries else None
        modes = common(lambda e: e.modes) or ("infer", "train")
        dtypes = common(lambda e: e.dtypes) or ("fp32", "fp16", "bf16")
        sizes = common(lambda e: e.sizes) or ("full", "tiny")
        size = first.sizes.get(held.get("size", "full"), first.sizes["full"]) if first and len(entries) == 1 else None
        batch = (
            f"{size.batch.get('cpu')} on a CPU, {size.batch.get('cuda', size.batch.get('cpu'))} on a GPU"
            if size
            else ""
        )
        windows = choice("windows", "windows", (), "20")
        if self._scripts_alone():
            return [windows]
        seq = f"{size.seq}" if size and size.seq else "this model has no sequence" if size else ""
        return [
            choice("mode", "mode", modes),
            choice("dtype", "precision", ("default", *dtypes)),
            choice("batch", "batch", (), batch),
            choice("seq", "sequence", (), seq),
            choice("size", "size", sizes),
            choice("attention", "attention", ("sdpa", "eager")),
            choice("backend", "backend", names.spelled()),
            choice("quant", "numbers", ("as they are", *names.QUANTS)),
            windows,
            choice("counters", "counters", *self._counters()),
        ]

    def _counters(self) -> tuple[tuple[str, ...], str]:
        """Ways to measure hardware counters in a second pass, and why there are none."""
        from profilers.collectors import counters

        if not any(row.kind in ("cuda", "mig") for row in self.devices):
            return ("none",), "a GPU's; estimated elsewhere"
        return ("none", *counters.CHOICES), ""

    def argv(self) -> list[str]:
        """The words of the equivalent command."""
        choices = self.query_one("#choices", Choices)
        words = ["run", *self._picked()]
        devices = [key for key in self.query_one("#devices", PickList).picked if key != "auto"]
        if devices:
            words += ["--device", ",".join(devices)]
        entries = self._picked_entries()
        offered = {choice.name for choice in choices.choices}
        if "mode" in offered and choices.value("mode") != (entries[0].modes[0] if entries else "infer"):
            words += ["--mode", choices.value("mode")]
        for name, unsaid in (
            ("dtype", "default"),
            ("size", "full"),
            ("attention", "sdpa"),
            ("backend", "eager"),
            ("quant", "as they are"),
            ("counters", "none"),
            ("batch", ""),
            ("seq", ""),
            ("windows", ""),
        ):
            if name in offered and choices.value(name) != unsaid:
                words += [f"--{name}", choices.value(name)]
        arguments = self._script_arguments()
        return [*words, "--", *arguments] if arguments else words

    def _show_command(self) -> None:
        words = self.argv()
        picked = self._picked()
        shown = "kernelscope " + shlex.join(words) if picked else "Pick a model with space; several make a queue."
        self.query_one("#command", Static).update(shown)

    @on(PickList.Changed)
    def _changed(self, message: PickList.Changed) -> None:
        if message.sender.id == "models":
            self.query_one("#choices", Choices).set_choices(self._choices(self._picked_entries()))
        self._busy_confirmed = ""
        self._say("")
        self._show_command()

    @on(Choices.Changed)
    def _chosen(self) -> None:
        self.query_one("#choices", Choices).set_choices(self._choices(self._picked_entries()))
        self._say("")
        self._show_command()

    @on(PickList.Moved, "#models")
    def _about(self, message: PickList.Moved) -> None:
        entry = self.entries.get(message.key.split("/", 1)[-1])
        self.query_one("#about", Static).update(f"{entry.title}: {entry.doc}" if entry else "")

    @on(PickList.Moved, "#devices")
    def _about_device(self, message: PickList.Moved) -> None:
        """The whole line of a device, which seldom fits into the list."""
        item = self.query_one("#devices", PickList).current
        self.query_one("#about", Static).update(f"{item.text}  {item.detail}" if item else "")

    @on(PickList.Entered, "#models")
    def _entered(self, message: PickList.Entered) -> None:
        models = self.query_one("#models", PickList)
        if not models.picked:
            models.action_pick()
        self.query_one("#devices", PickList).focus()

    @on(PickList.Entered, "#devices")
    def _device_entered(self) -> None:
        self.query_one("#choices", Choices).focus()

    @on(Choices.Done)
    def _options_done(self) -> None:
        self.action_start()

    def action_search(self) -> None:
        self.query_one("#search", Input).focus()

    @on(Input.Changed, "#search")
    def _searched(self, event: Input.Changed) -> None:
        from apps import catalogue

        models = self.query_one("#models", PickList)
        typed = own_code.understand(event.value, tuple(catalogue.suites()))
        kept = {key: own for key, own in self.own.items() if key in models.picked}
        own = kept if typed is None else {f"{own_code.HEADING}/{typed.text}": typed} | kept
        if own != self.own:
            self.own = own
            self._list_models()
        models.filter(typed.text if typed else event.value)

    @on(Input.Submitted, "#search")
    def _search_done(self) -> None:
        self.query_one("#models", PickList).focus()

    def key_down(self) -> None:
        if isinstance(self.focused, Input):
            self.query_one("#models", PickList).focus()

    # -- doing it ----------------------------------------------------------------------------------------------------

    def action_copy(self) -> None:
        from tui.clipboard import copy_text

        self.app.notify(copy_text(self.app, "kernelscope " + shlex.join(self.argv()), "the command"))

    def action_start(self) -> None:
        if self._starting:
            return
        if not self._picked():
            self._say("Pick at least one model (space).")
            return
        taken = [row for row in self.devices if row.device in self.query_one("#devices", PickList).picked and row.busy]
        command = shlex.join(self.argv())
        if taken and self._busy_confirmed != command:
            self._busy_confirmed = command
            names = ", ".join(f"{row.device} ({row.users or row.usage})" for row in taken)
            self._say(
                f"In use: {names}. Measurements would disturb and be disturbed. ctrl+s again starts all the same."
            )
            return
        self._starting = True
        self._say("")
        self.query_one("#command", Static).update("starting …")
        self.start(self.argv())

    @work(thread=True, group="start", description="starting runs", exit_on_error=False)
    def start(self, argv: list[str]) -> None:
        """What the command line does with these words, up to the launch."""
        from tui.cli.parser import parse
        from tui.cli.plan import planned

        try:
            specs = planned(parse(argv))
            from profilers.runs.launch import launch

            runs = launch(specs, self.app.root)
        except Exception as problem:  # every refusal is one line for the person; nothing was started
            self.app.call_from_thread(self._refused, " ".join(str(problem).split()) or type(problem).__name__)
            return
        self.app.call_from_thread(self._started, tuple(run.id for run in runs))

    def _refused(self, text: str) -> None:
        self._starting = False
        self._say(text)
        self._show_command()

    def _started(self, keys: tuple[str, ...]) -> None:
        self.app.post_message(RunsStarted(keys))
        self.dismiss()

    def _say(self, text: str) -> None:
        self.query_one("#new-error", Static).update(text)

    def action_back(self) -> None:
        if isinstance(self.focused, Input) and self.focused.value:
            self.focused.value = ""
            self.query_one("#models", PickList).focus()
            return
        self.dismiss()
