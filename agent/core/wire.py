"""Prepare and unprepare messages as bytes: taken apart and put together, never decoded and encoded.

v1 and v1beta1 have the same field numbers, so one reader serves both. What is not understood is
kept: a field that a newer kubelet or driver adds goes through, and a map value that was not changed
keeps its very bytes. Garbage raises WireError and nothing else.

    request:   repeated Claim claims = 1 {namespace = 1, uid = 2, name = 3}
    response:  map<string, entry> claims = 1
    entry:     repeated Device devices = 1, string error = 2, bool permanent_error = 3 (KEP-5322)
    Device:    device_name = 3
    unprepare: entries hold only string error = 1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from agent.core.model import ClaimRef

_VARINT, _FIXED64, _BYTES, _START, _END, _FIXED32 = range(6)

# Tags: field number and wire type. A known number with another wire type is an unknown field, as it
# is for protobuf's own parsers.
_CLAIMS = 1 << 3 | _BYTES
_NAMESPACE, _UID, _NAME = (number << 3 | _BYTES for number in (1, 2, 3))
_KEY, _VALUE = (number << 3 | _BYTES for number in (1, 2))
_DEVICES, _ERROR = (number << 3 | _BYTES for number in (1, 2))
_PERMANENT = 3 << 3 | _VARINT
_DEVICE_NAME = 3 << 3 | _BYTES
_UNPREPARE_ERROR = 1 << 3 | _BYTES

_MAX_DEPTH = 100  # of groups; protobuf's own parsers stop there


class WireError(ValueError):
    """Bytes that are not a protobuf message of the expected shape."""


class Field(NamedTuple):
    """One field as it stands in a message."""

    tag: int
    value: bytes  # content of a length-delimited field, else the value's own bytes
    raw: bytes  # tag and value as they came


@dataclass(frozen=True, slots=True)
class Entry:
    """A driver's answer for one claim."""

    raw: bytes
    error: str  # "" when the claim was prepared
    permanent_error: bool  # only ever true together with an error
    devices: tuple[str, ...]  # device names


def parse_claims(body: bytes) -> tuple[ClaimRef, ...]:
    """Claims of a prepare or unprepare request, in order."""
    return tuple(_claim(field.value) for field in _fields(body) if field.tag == _CLAIMS)


def subset(body: bytes, uids: Set[str]) -> bytes:
    """The request for some of its claims; all else, unknown fields too, as it came."""
    kept = [
        field.raw
        for field in _fields(body)
        if field.tag != _CLAIMS or _claim(field.value).uid in uids
    ]
    return b"".join(kept)


def entries(body: bytes) -> dict[str, Entry]:
    """Answers by claim UID. Of a doubled UID the last wins, as in every protobuf map."""
    found: dict[str, Entry] = {}
    for field in _fields(body):
        if field.tag == _CLAIMS:
            uid, raw = _map_entry(field.value)
            found[uid] = entry(raw)
    return found


def entry(raw: bytes) -> Entry:
    """One answer, taken apart."""
    error, permanent = "", False
    devices: list[str] = []
    for field in _fields(raw):
        if field.tag == _DEVICES:
            devices.append(_last_text(field.value, _DEVICE_NAME))
        elif field.tag == _ERROR:
            error = _text(field.value)
        elif field.tag == _PERMANENT:
            permanent = _read_varint(field.value, 0)[0] != 0
    return Entry(raw, error, permanent and error != "", tuple(devices))


def unprepare_errors(body: bytes) -> dict[str, str]:
    """Errors of an unprepare response by claim UID (its entries have `error` = 1), "" for none."""
    pairs = [_map_entry(field.value) for field in _fields(body) if field.tag == _CLAIMS]
    return {uid: _last_text(raw, _UNPREPARE_ERROR) for uid, raw in pairs}


def response(items: Sequence[tuple[str, bytes]], rest: bytes = b"") -> bytes:
    """A response of answers by claim UID, and the unknown fields of the driver's own."""
    parts = []
    for uid, raw in items:
        content = _delimited(_KEY, uid.encode("utf-8", "replace")) + _delimited(_VALUE, raw)
        parts.append(_delimited(_CLAIMS, content))
    return b"".join(parts) + rest


def rest(body: bytes) -> bytes:
    """Top-level fields of a response other than its claims, as they came."""
    return b"".join(field.raw for field in _fields(body) if field.tag != _CLAIMS)


def with_error(entry: bytes, text: str, permanent: bool) -> bytes:
    """The answer with another error text; devices and unknown fields stay.

    `permanent` sets permanent_error; False leaves what the driver said. An empty `entry` makes a
    new answer.
    """
    dropped = {_ERROR, _PERMANENT} if permanent else {_ERROR}
    kept = [field.raw for field in _fields(entry) if field.tag not in dropped]
    changed = _delimited(_ERROR, text.encode("utf-8", "replace"))
    if permanent:
        changed += _varint(_PERMANENT) + b"\x01"
    return b"".join(kept) + changed


def _claim(content: bytes) -> ClaimRef:
    parts = {_NAMESPACE: "", _UID: "", _NAME: ""}
    for field in _fields(content):
        if field.tag in parts:
            parts[field.tag] = _text(field.value)
    return ClaimRef(namespace=parts[_NAMESPACE], uid=parts[_UID], name=parts[_NAME])


def _map_entry(content: bytes) -> tuple[str, bytes]:
    uid, values = "", []
    for field in _fields(content):
        if field.tag == _KEY:
            uid = _text(field.value)
        elif field.tag == _VALUE:
            values.append(field.value)
    # A message field that comes twice is merged, which is what joined bytes mean.
    return uid, b"".join(values)


def _last_text(content: bytes, tag: int) -> str:
    values = [field.value for field in _fields(content) if field.tag == tag]
    return _text(values[-1]) if values else ""


def _text(value: bytes) -> str:
    # Not UTF-8 is against the protocol, but here it is better read than refused.
    return value.decode("utf-8", "replace")


def fields(data: bytes) -> Iterator[Field]:
    """The fields of any message in order; WireError where the bytes are none."""
    return _fields(data)


def _fields(data: bytes) -> Iterator[Field]:
    at = 0
    while at < len(data):
        start = at
        tag, at = _read_varint(data, at)
        value, at = _read_value(data, at, tag)
        yield Field(tag, value, data[start:at])


def _read_value(data: bytes, at: int, tag: int) -> tuple[bytes, int]:
    number, kind = tag >> 3, tag & 7
    if not 1 <= number < 1 << 29:
        raise WireError(f"field number {number} is out of range")
    if kind == _VARINT:
        end = _read_varint(data, at)[1]
    elif kind == _BYTES:
        size, at = _read_varint(data, at)
        end = at + size
    elif kind in (_FIXED64, _FIXED32):
        end = at + (8 if kind == _FIXED64 else 4)
    elif kind == _START:
        end = _skip_group(data, at, number)
    else:
        raise WireError(f"field {number} has unknown wire type {kind}")
    if end > len(data):
        raise WireError("message is cut short")
    return data[at:end], end


def _skip_group(data: bytes, at: int, number: int) -> int:
    open_groups = [number]
    while open_groups:
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _END:
            if open_groups.pop() != number:
                raise WireError("group ends that did not begin")
        elif kind == _START:
            if len(open_groups) >= _MAX_DEPTH:
                raise WireError("groups are nested too deep")
            open_groups.append(number)
        else:
            _, at = _read_value(data, at, tag)
    return at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise WireError("varint is cut short or too long")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _delimited(tag: int, content: bytes) -> bytes:
    return _varint(tag) + _varint(len(content)) + content
