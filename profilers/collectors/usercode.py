"""Running a user's own code in a process that already runs ours, so that every import in it means what they expect.

A user's folder may hold packages called ``apps``, ``tui`` or ``profilers``. Ours are loaded by then; they step aside:
they leave ``sys.modules`` (code that is running keeps what it imported), and those three names are looked up in the
user's folder first, also where a folder there has no ``__init__.py``. It cannot be undone, and nothing of ours may be
imported afterwards: the worker imports all it needs before.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from profilers.collectors.failures import UsageError

OURS = frozenset({"apps", "tui", "profilers"})


class _TheirsFirst(MetaPathFinder):
    """Finds our packages' names in the user's folder. Everything else is left to Python's own finders."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in OURS:
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self._folder], target)


def step_aside(folder: Path) -> None:
    """Make ``folder`` the first place where imports look, before our own packages, for the rest of this process."""
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    sys.meta_path.insert(0, _TheirsFirst(folder))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def load_callable(path: Path, name: str) -> Callable[..., Any]:
    """The callable ``name`` (dots allowed) of a Python file, imported as a module of its own name.

    Raises :class:`UsageError` when there is no such file or name; whatever the file itself raises goes through.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            hint = f"; it has {', '.join(known[:6])}" if known else ""
            raise UsageError(f"{path.name} has no '{name}'{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"'{name}' in {path.name} is not callable")
    return found  # type: ignore[no-any-return]


def wants_request(function: Callable[..., Any]) -> bool:
    """Whether a user's callable is a builder: it has a parameter that must be given (the request)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
