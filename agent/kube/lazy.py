"""Imports kubernetes_asyncio without its thousand model and API modules.

Its package `__init__` files import everything below them: 38 MiB and 0.4 s, of which this agent
needs the HTTP client and the config loaders. A finder on sys.meta_path lets these packages come
up empty, with a module `__getattr__` (PEP 562) that finds a name where the `__init__` would have
imported it from. Upstream knows the cost (tomplus/kubernetes_asyncio#293).
The test beside this file compares names and classes with those of the plain import.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

_ROOT = "kubernetes_asyncio"
_EMPTIED = frozenset({_ROOT, f"{_ROOT}.client", f"{_ROOT}.client.api", f"{_ROOT}.client.models"})
_IMPORT_FROM = re.compile(r"^from (\S+) import (\w+)(?: as (\w+))?\s*$", re.MULTILINE)
_IMPORT_AS = re.compile(r"^import (\S+) as (\w+)\s*$", re.MULTILINE)
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Library:
    """The parts of kubernetes_asyncio that are used."""

    api_client: Any
    configuration: Any
    load_kube_config_from_dict: Any


def load() -> Library:
    """Import the library. Takes 0.1-0.3 s and blocks: call it in a thread."""
    with _LOCK:
        install()
        client = importlib.import_module(f"{_ROOT}.client")
        config = importlib.import_module(f"{_ROOT}.config")
        return Library(client.ApiClient, client.Configuration, config.load_kube_config_from_dict)


def install() -> None:
    """Put the finder in place, once; without effect where the library is imported already."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _EMPTIED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _EmptyLoader(Path(spec.origin))
        return spec


class _EmptyLoader(importlib.abc.Loader):
    """Runs nothing of the package's `__init__`; its names are looked up when asked for."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        table: dict[str, tuple[str, str]] = {}

        def find(name: str) -> Any:  # noqa: ANN401 - whatever the module holds
            if not table and not name.startswith("__"):
                table.update(_names_in(self._source.read_text(encoding="utf-8")))
            if name not in table:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            where, what = table[name]
            found = importlib.import_module(where)
            value = getattr(found, what) if what else found
            setattr(module, name, value)
            return value

        module.__getattr__ = find  # type: ignore[method-assign]  # PEP 562


def _names_in(source: str) -> dict[str, tuple[str, str]]:
    """Map each name that the source imports to (module, attribute or "")."""
    table = {name: (module, "") for module, name in _IMPORT_AS.findall(source)}
    for module, attribute, alias in _IMPORT_FROM.findall(source):
        if module != "__future__":
            table[alias or attribute] = (module, attribute)
    return table
