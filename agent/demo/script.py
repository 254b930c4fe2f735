"""What the scripted driver answers, from a JSON file that may change while it runs.

    {"devices": {"<claim name>": [{"request": "gpu-0", "pool": "node-a", "device": "gpu-0"}]},
     "rules": [{"match": "gpu-3", "error": "...", "operation": "prepare", "code": 14, "times": 3,
                "delay": 0.5, "permanent_error": true}]}

A rule counts for a claim if `match` is part of the claim's name, namespace, uid or one of its
devices; the first that counts and is not used up decides. `code` makes it the answer of the whole
call, `delay` (seconds) comes before the answer, without `error` the delay is all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from agent.core.model import ClaimRef
from agent.demo import messages


class DeviceLine(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A device of a claim."""

    request: str
    pool: str
    device: str


class Rule(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One scripted behaviour; `times` 0 is for ever."""

    match: str = ""
    error: str = ""
    operation: str = "prepare"
    code: int = 0
    times: int = 0
    delay: float = 0.0
    permanent_error: bool = False


class ScriptFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole file."""

    devices: Mapping[str, tuple[DeviceLine, ...]] = {}
    rules: tuple[Rule, ...] = ()


class Script:
    """Reads the file again when it was replaced. How often a rule was used survives that."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: tuple[int, int] | None = None
        self._file = ScriptFile()
        self._used: dict[Rule, int] = {}

    def _fresh(self) -> ScriptFile:
        found = os.stat(self._path)
        if (found.st_ino, found.st_mtime_ns) != self._read_at:
            self._file = msgspec.json.decode(self._path.read_bytes(), type=ScriptFile)
            self._read_at = (found.st_ino, found.st_mtime_ns)
        return self._file

    def devices(self, claim: ClaimRef) -> tuple[messages.PreparedDevice, ...]:
        """What a good prepare of the claim gives; one made-up device if the file has none."""
        lines = self._fresh().devices.get(claim.name) or (DeviceLine("", "pool", claim.name),)
        return tuple(
            messages.PreparedDevice(
                (line.request,) if line.request else (),
                line.pool,
                line.device,
                (f"demo.invalid/device={line.device}",),
            )
            for line in lines
        )

    def take(self, operation: str, claim: ClaimRef) -> Rule | None:
        """The rule that decides about this claim now; counts as used."""
        words = [claim.name, claim.namespace, claim.uid]
        words += [device.device for device in self.devices(claim)]
        for rule in self._fresh().rules:
            used = self._used.get(rule, 0)
            fits = rule.operation == operation and any(rule.match in word for word in words)
            if fits and (rule.times == 0 or used < rule.times):
                self._used[rule] = used + 1
                return rule
        return None


def write_script(path: Path, script: ScriptFile) -> None:
    """Replace the file in one step, so that a driver never reads half of it."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(script))
    fresh.replace(path)
