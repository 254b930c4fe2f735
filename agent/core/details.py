"""The standard error details (google.rpc) that a gRPC status may carry, read by hand.

`grpc-status-details-bin` holds a google.rpc.Status {code = 1, message = 2, repeated Any details =
3}; an Any is {type_url = 1, value = 2}. Field numbers are those of googleapis' error_details.proto.
The bytes are a driver's: whatever they are, the answer is a value and never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agent.core import text, wire
from agent.core.marker import MAX_RETRY_AFTER

MAX_BYTES = 1 << 20
_MAX_DETAILS = 64
_MAX_ITEMS = 64  # violations, metadata entries
_VARINT, _BYTES = 0, 2
_SIGN = 1 << 63
_PREFIX = "google.rpc."


@dataclass(slots=True)
class Details:
    """What was found; empty where a driver sent nothing of the kind."""

    reason: str = ""  # ErrorInfo
    domain: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    retry_after: float | None = None  # RetryInfo, seconds
    bad_fields: list[str] = field(default_factory=list)  # BadRequest: "field: description"
    preconditions: list[str] = field(default_factory=list)  # "type: subject: description"
    bad_request: bool = False
    precondition_failure: bool = False

    @property
    def any(self) -> bool:
        """True when there is something to judge by."""
        return bool(
            self.reason
            or self.retry_after is not None
            or self.bad_request
            or self.precondition_failure
        )


def parse(raw: bytes | None) -> Details:
    """Read a status' details; what cannot be read is left out."""
    found = Details()
    if not raw or len(raw) > MAX_BYTES:
        return found
    for number, packed in enumerate(_all(raw, 3)):
        if number >= _MAX_DETAILS:
            break
        name = _text(packed, 1).rpartition("/")[2]
        reader = _READERS.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
        if reader is not None:
            reader(_last(packed, 2), found)
    return found


def _error_info(raw: bytes, found: Details) -> None:
    found.reason = _text(raw, 1)
    found.domain = _text(raw, 2)
    for number, entry in enumerate(_all(raw, 3)):
        if number >= _MAX_ITEMS:
            break
        found.metadata[_text(entry, 1)] = _text(entry, 2)


def _retry_info(raw: bytes, found: Details) -> None:
    delay = _last(raw, 1)
    seconds = _signed(_number(delay, 1)) + _signed(_number(delay, 2)) / 1e9
    if seconds >= 0:
        found.retry_after = min(seconds, MAX_RETRY_AFTER)


def _bad_request(raw: bytes, found: Details) -> None:
    found.bad_request = True
    found.bad_fields.extend(_joined(raw, (1, 2)))


def _precondition_failure(raw: bytes, found: Details) -> None:
    found.precondition_failure = True
    found.preconditions.extend(_joined(raw, (1, 2, 3)))


_READERS: dict[str, Callable[[bytes, Details], None]] = {
    "ErrorInfo": _error_info,
    "RetryInfo": _retry_info,
    "BadRequest": _bad_request,
    "PreconditionFailure": _precondition_failure,
}


def _joined(raw: bytes, numbers: tuple[int, ...]) -> Iterator[str]:
    """Each violation (field 1) as one line of its text fields."""
    for count, violation in enumerate(_all(raw, 1)):
        if count >= _MAX_ITEMS:
            return
        words = [_text(violation, number) for number in numbers]
        yield text.clean(": ".join(word for word in words if word), 500)


def _all(raw: bytes, number: int) -> Iterator[bytes]:
    """Contents of a repeated message field; ends early where the bytes end badly."""
    try:
        for one in wire.fields(raw):
            if one.tag == number << 3 | _BYTES:
                yield one.value
    except wire.WireError:
        return


def _last(raw: bytes, number: int) -> bytes:
    value = b""
    for found in _all(raw, number):
        value = found
    return value


def _text(raw: bytes, number: int) -> str:
    return _last(raw, number).decode("utf-8", "replace")


def _number(raw: bytes, number: int) -> int:
    value = 0
    try:
        for one in wire.fields(raw):
            if one.tag == number << 3 | _VARINT:
                value = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(one.value))
    except wire.WireError:
        pass
    return value & (1 << 64) - 1


def _signed(value: int) -> int:
    return value - (1 << 64) if value & _SIGN else value
