"""Parameters and memory of every workload, computed on the meta device: ``python -m tests.benchmarks.catalogue_figures``.

Prints one line a workload and mode. ``--write`` puts ``memory_gb`` (and ``parameters`` where a size has none) into the
suite files; names on the command line restrict it to these workloads or suites.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace

from apps import fit
from apps.catalogue import SUITES, Entry, entries, expand, lookup
from apps.meta import PeakMemory
from apps.workload import Request


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--meta-only", action="store_true", help="leave out what needs a real step on the CPU")
    wishes = parser.parse_args()
    chosen = [lookup(n) for name in wishes.names for n in expand(name)] if wishes.names else entries()
    for entry in chosen:
        if missing := entry.missing():
            print(missing)
            continue
        if wishes.meta_only and entry.data_dependent:
            continue
        memory = figures(entry)
        print(f"{entry.name:24} {parameters(entry):>16,} {memory}", flush=True)
        if wishes.write:
            write(entry, parameters(entry), memory)


def figures(entry: Entry) -> dict[str, float]:
    """Mode -> estimated decimal GB of the full size at its defaults on a GPU; a real step on the CPU where it must be."""
    found = {}
    for mode in entry.modes:
        request = entry.request(mode=mode, device="cuda")
        if mode in entry.data_dependent:
            memory = on_cpu(entry, request)
        else:
            memory = fit.estimate(entry, request)
        found[mode] = float(f"{memory.total / 1e9:.3g}")
    return found


def on_cpu(entry: Entry, request: Request) -> fit.Memory:
    """For sizes that depend on the data: the same count over a real step of one sample on the CPU in fp32, what a step
    adds times the batch. On the high side."""
    memory = PeakMemory()
    with memory:
        built = entry.load()(replace(request, device="cpu", dtype="fp32", batch=1))
        built.step()
        resident = memory.live
    peak = resident + (memory.peak - resident) * request.batch
    return fit.Memory(0, resident, peak, "cuda")


def parameters(entry: Entry) -> int:
    """Parameters of the full size, counted on the model; it is built on the meta device, in its first possible mode."""
    for mode in entry.modes:
        if mode not in entry.data_dependent:
            return entry.load()(entry.request(mode=mode, device="meta")).parameters
    return entry.parameters


def write(entry: Entry, count: int, memory: dict[str, float]) -> None:
    path = SUITES / f"{entry.suite}.toml"
    text = path.read_text(encoding="utf-8")
    head = rf'\[workload\.(?:"{re.escape(entry.name)}"|{re.escape(entry.name)})\.sizes\.full\]\n'
    found = re.search(head + r"((?:.+\n)*)", text)
    if found is None:
        raise SystemExit(f"{path.name}: no size full for {entry.name}")
    lines = [line for line in found[1].splitlines() if not line.startswith("memory_gb")]
    if not any(line.startswith("parameters") for line in lines):
        lines.append(f"parameters = {count:_}")
    if memory:
        lines.append("memory_gb = { " + ", ".join(f"{mode} = {gb}" for mode, gb in memory.items()) + " }")
    order = ("batch", "max_batch", "seq", "max_seq", "parameters", "memory_gb", "config")
    lines.sort(key=lambda line: order.index(line.split(" = ")[0]))
    path.write_text(text[: found.start(1)] + "\n".join(lines) + "\n" + text[found.end(1) :], encoding="utf-8")


if __name__ == "__main__":
    main()
