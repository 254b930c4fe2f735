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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.core import attribution, codes, text, transport
from agent.core.classify import Explanation, RuleSet
from agent.core.model import ClaimRef, Device, Failure, Surface
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


class Odd:
    """What could not be read in files: one warning each, on standard error."""

    def __init__(self) -> None:
        self.skipped = 0  # lines that are no JSON objects
        self._place = ""

    def at(self, name: str, number: int) -> None:
        """What follows is about this line."""
        self._place = f"{name}:{number}"

    def skip(self, why: str) -> None:
        """The line has no answer."""
        self.skipped += 1
        self._warn(f"{why}; the line is left out")

    def field(self, key: str, value: object, wanted: str, instead: str = "none") -> None:
        """A field cannot be understood; `instead` is taken."""
        shown = text.quote(value if isinstance(value, str) else repr(value)[:200])
        self._warn(f"{key}: {shown} is not {wanted}; taken as {instead}")

    def _warn(self, said: str) -> None:
        print(f"warning: {self._place}: {said}", file=sys.stderr)


def read(path: str, odd: Odd | None = None) -> Iterator[Entry]:
    """Read a file, `-` for standard input; UserError where that is not possible."""
    if path == "-":
        said = sys.stdin.buffer.read().decode("utf-8", "replace")
        yield from entries(said, "standard input", odd)
        return
    try:
        said = Path(path).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    yield from entries(said, path, odd)


def entries(said: str, name: str, odd: Odd | None = None) -> Iterator[Entry]:
    """The lines of a text that are JSON objects; `name` is where it is from."""
    odd = odd or Odd()
    for number, written in enumerate(said.split("\n"), 1):
        line = written.strip("\ufeff \t\r")
        if not line:
            continue
        odd.at(name, number)
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            odd.skip(f"not JSON: {text.clean(str(error), 200)}")
            continue
        if isinstance(fields, dict):
            yield _entry(fields, odd)
        else:
            odd.skip("not an object")


def builtin() -> str:
    """The corpus that ships with the agent."""
    return shipped("failures.jsonl")


def blamed(entry: Entry, found: Explanation) -> str | None:
    """The device at fault; where the allocation is known, only one that it gives this driver."""
    verdict = found.verdict
    if entry.devices is None:
        return verdict.blamed and text.clean(verdict.blamed, 253)
    found_one = attribution.blame(entry.failure.driver, verdict, entry.devices)
    return found_one.place[2] if found_one is not None and found_one.at_fault else None


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
        try:
            line = json.dumps(body, ensure_ascii=False)
            line.encode()
        except UnicodeEncodeError:  # half a character in the id
            line = json.dumps(body)
        yield line


def _entry(fields: dict[str, Any], odd: Odd) -> Entry:
    surface = _surface(fields.get("surface"), odd)
    said = _string(fields, "text", odd)
    code = _code(fields.get("grpc_code"), odd)
    driver = _string(fields, "driver", odd)
    uid = _string(fields, "claim_uid", odd)
    broken = transport.of_words(said, code) if surface is Surface.TRANSPORT else None
    failure = Failure(
        driver="" if " " in driver else driver,  # `any (kubelet)`
        operation=_string(fields, "op", odd) or "prepare",
        surface=surface,
        text=said,
        code=code if surface is Surface.CALL_ERROR else None,
        transport=broken,
        permanent_error=fields.get("permanent_error") is True and said != "",
        details=_details(fields.get("details"), odd),
        claim=uid,
    )
    name = fields.get("id")
    return Entry("" if name is None else str(name), failure, _devices(fields, uid, odd), fields)


def _surface(value: object, odd: Odd) -> Surface:
    found = _SURFACES.get(value or "claim_error") if isinstance(value, str | None) else None
    if found is None:
        odd.field("surface", value, f"one of {', '.join(_SURFACES)}", "claim_error")
    return found or Surface.CLAIM_ERROR


def _string(fields: Mapping[str, Any], key: str, odd: Odd) -> str:
    value = fields.get(key)
    if value is None or isinstance(value, str):
        return value or ""
    odd.field(key, value, "text")
    return ""


def _code(value: object, odd: Odd) -> int | None:
    try:
        return codes.number(value)
    except ValueError:
        odd.field("grpc_code", value, "a gRPC code")
        return None


def _details(value: object, odd: Odd) -> bytes | None:
    if value is None:
        return None
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        odd.field("details", value, "base64")
        return None


def _devices(fields: Mapping[str, Any], uid: str, odd: Odd) -> tuple[Device, ...] | None:
    given = fields.get("devices")
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        odd.field("devices", given, "a list of objects")
        return None
    claim = ClaimRef("", uid, "") if uid else _NO_CLAIM
    return tuple(
        Device(
            claim=claim,
            request=_string(one, "request", odd),
            driver=_string(one, "driver", odd),
            pool=_string(one, "pool", odd),
            device=_string(one, "device", odd),
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
