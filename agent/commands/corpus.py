"""Failure texts from a JSON Lines file, as `explain --jsonl` and `rules test` read them.

One object per line, with the fields of config/failures.jsonl: `id`, `driver`, `op`,
`surface`, `grpc_code`, `text`; optional `devices` (the claim's allocated devices: `driver`, `pool`,
`device`, `attributes`), `permanent_error`, `claim_uid` and `details` (base64 of
grpc-status-details-bin). Unknown fields are left alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.core import attribution, text, transport
from agent.core.classify import Explanation, RuleSet
from agent.core.model import ClaimRef, Culprit, Device, Failure, Kind, Surface
from agent.core.rules import CODES
from agent.errors import UserError
from agent.settings.load import shipped

_SURFACES = {
    "claim_error": Surface.CLAIM_ERROR,
    "event": Surface.CLAIM_ERROR,
    "grpc_status": Surface.CALL_ERROR,
    "call_error": Surface.CALL_ERROR,
    "transport": Surface.TRANSPORT,
}
_NO_CLAIM = ClaimRef("", "", "")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line."""

    id: str
    failure: Failure
    devices: tuple[Device, ...] | None  # None: not given
    fields: Mapping[str, Any]  # as written


def read(path: str) -> Iterator[Entry]:
    """Read a file, `-` for standard input; UserError names the line that cannot be read."""
    if path == "-":
        yield from entries(sys.stdin.buffer.read().decode("utf-8", "replace"), "standard input")
        return
    try:
        said = Path(path).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    yield from entries(said, path)


def entries(said: str, name: str) -> Iterator[Entry]:
    """The lines of a text; `name` is where it is from."""
    for number, line in enumerate(said.split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{name}:{number}: not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise UserError(f"{name}:{number}: expected one object per line")
        try:
            yield _entry(fields)
        except _Bad as error:
            raise UserError(f"{name}:{number}: {error}") from error


def builtin() -> str:
    """The corpus that ships with the agent."""
    return shipped("failures.jsonl")


def blamed(entry: Entry, found: Explanation) -> str | None:
    """The device at fault; where the allocation is known, only one that it gives this driver."""
    verdict = found.verdict
    if entry.devices is None:
        return verdict.blamed and text.clean(verdict.blamed, 253)
    if verdict.culprit is not Culprit.DEVICE:
        return None
    said: Sequence[str] = (verdict.device,) if verdict.device else ()
    if not said and verdict.kind is not Kind.AMBIGUOUS:
        said = verdict.named
    driver = entry.failure.driver
    places = {attribution.find(driver, name, entry.devices) for name in said} - {None}
    place = next(iter(places)) if len(places) == 1 else None
    return place[2] if place is not None else None


def answers(given: Iterable[Entry], rules: RuleSet) -> Iterator[str]:
    """One JSON object for each entry: id, verdict, culprit, device, rule, hint."""
    for entry in given:
        found = rules.explain(entry.failure)
        body = {
            "id": entry.fields.get("id"),
            "verdict": str(found.verdict.kind),
            "culprit": str(found.verdict.culprit),
            "device": blamed(entry, found),
            "rule": found.verdict.rule,
            "hint": found.verdict.hint,
        }
        yield json.dumps(body, ensure_ascii=False)


class _Bad(ValueError):
    """A field that cannot be understood."""


def _entry(fields: dict[str, Any]) -> Entry:
    surface = _SURFACES.get(fields.get("surface") or "claim_error")
    if surface is None:
        raise _Bad(f"surface: expected one of {', '.join(_SURFACES)}")
    said = _string(fields, "text")
    code = _code(fields.get("grpc_code"))
    driver = _string(fields, "driver")
    uid = _string(fields, "claim_uid")
    broken = transport.of_words(said, code) if surface is Surface.TRANSPORT else None
    failure = Failure(
        driver="" if " " in driver else driver,  # `any (kubelet)`
        operation=_string(fields, "op") or "prepare",
        surface=surface,
        text=said,
        code=code if surface is Surface.CALL_ERROR else None,
        transport=broken,
        permanent_error=fields.get("permanent_error") is True and said != "",
        details=_details(fields.get("details")),
        claim=uid,
    )
    name = fields.get("id")
    return Entry("" if name is None else str(name), failure, _devices(fields, uid), fields)


def _string(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Bad(f"{key}: expected text")
    return value


def _code(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and value in CODES.values():
        return value
    name = str(value).upper().replace("CANCELED", "CANCELLED")
    if name not in CODES:
        raise _Bad(f"grpc_code: unknown code {text.quote(str(value))}")
    return CODES[name]


def _details(value: object) -> bytes | None:
    if value is None:
        return None
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Bad("details: expected base64") from error


def _devices(fields: Mapping[str, Any], uid: str) -> tuple[Device, ...] | None:
    given = fields.get("devices")
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise _Bad("devices: expected a list of objects")
    claim = ClaimRef("", uid, "") if uid else _NO_CLAIM
    return tuple(
        Device(
            claim=claim,
            request=_string(one, "request"),
            driver=_string(one, "driver"),
            pool=_string(one, "pool"),
            device=_string(one, "device"),
            attributes=_attributes(one.get("attributes")),
        )
        for one in given
    )


def _attributes(given: object) -> dict[str, str]:
    """Attributes as text, whether written plainly or as the API has them ({"string": …})."""
    found = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        plain = next(iter(value.values()), None) if isinstance(value, dict) else value
        if isinstance(plain, bool):
            found[str(name)] = str(plain).lower()
        elif isinstance(plain, str | int):
            found[str(name)] = str(plain)
    return found
