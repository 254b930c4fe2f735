"""Writes for a terminal of 100 columns; colour only on a terminal, never under NO_COLOR."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

from agent import names
from agent.core.text import clean
from agent.demo.store import Object
from agent.demo.timeline import CREATED, RUNNING, Entry

WIDTH = 100
CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
TABLE = (
    ("device", 10),
    ("state", 10),
    ("verdict", 11),
    ("culprit", 12),
    ("attempts", 10),
    ("claim", 24),
)


DETAILS = ("cause", "hint")


class Printer:
    """Prints to one stream."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._colour = self._stream.isatty() and not os.environ.get("NO_COLOR")

    def line(self, text: str = "", style: str = "") -> None:
        """One line, cut at the width."""
        text = text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
        if style and self._colour:
            text = f"\x1b[{CODES[style]}m{text}\x1b[0m"
        print(text, file=self._stream, flush=True)

    def paragraph(self, text: str, indent: int = 0, style: str = "") -> None:
        """Text, wrapped."""
        space = " " * indent
        for line in _wrap(text, WIDTH - indent):
            self.line(space + line, style)

    def timeline(self, title: str, entries: Sequence[Entry]) -> None:
        """Entries with seconds since `created`; what came before is at 0."""
        start = next(entry.wall for entry in entries if entry.what == CREATED)
        self.line(f"   {title}", "bold")
        for entry in entries:
            what = clean(entry.what, 400)
            lines = _wrap(what, WIDTH - 26) or [""]
            good, bad = what == RUNNING or what.endswith("works"), "fail" in what.lower()
            style = "green" if good else "red" if bad else ""
            seconds = max(0.0, entry.wall - start)
            self.line(f"   {seconds:8.2f} s   {entry.who:<8} {lines[0]}", style)
            for more in lines[1:]:
                self.line(" " * 23 + more, style)

    def pod(self, pod: Object) -> None:
        """What the pod's own status says: phase, conditions, the table of its devices."""
        status = pod["status"]
        words = (status.get(key, "") for key in ("phase", "reason"))
        self.line("   the pod's own status", "bold")
        self.line(f"      phase      {' / '.join(filter(None, words))}")
        told: set[str] = set()
        for condition in _ours(status.get("conditions") or []):
            reason, message = condition.get("reason", ""), condition.get("message", "")
            self.line(f"      condition  {condition['type']}={condition['status']} ({reason})")
            self.paragraph("the same message" if message in told else clean(message, 4096), 17)
            told.add(message)
        annotation = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_FAILURES)
        if annotation:
            self.line(f"      annotation {names.ANNOTATION_FAILURES}")
            self._devices(json.loads(annotation)["devices"])

    def _devices(self, devices: Sequence[dict[str, Any]]) -> None:
        head = "".join(f"{name:<{width}}" for name, width in TABLE)
        self.line(f"         {head.rstrip()}", "dim")
        for device in devices:
            cells = "".join(f"{device.get(name, '-')!s:<{width}}" for name, width in TABLE)
            self.line(f"         {cells.rstrip()}")
            for name in DETAILS:
                if device.get(name):
                    self.paragraph(f"{name}: {clean(str(device[name]), 1024)}", 12)


def _ours(conditions: Sequence[Object]) -> list[Object]:
    """Our conditions, DevicesPrepared first."""
    ours = [one for one in conditions if one["type"].startswith(f"{names.DOMAIN}/")]
    return sorted(ours, key=lambda one: str(one["type"] != names.CONDITION_PREPARED))


def _wrap(text: str, width: int) -> list[str]:
    """Names with hyphens stay whole."""
    return textwrap.wrap(text, width, break_on_hyphens=False)
