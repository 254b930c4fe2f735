"""Header blocks: metadata, grpc-timeout, grpc-message and status, as bytes and back.

Headers are bytes on both sides of h2 here (`header_encoding=None`), so that a header which is not
ASCII is data, not an exception. Text is carried as latin-1, which gives every byte back as it came.
Source: the gRPC over HTTP/2 protocol description (PROTOCOL-HTTP2.md of grpc/grpc).
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from urllib.parse import quote_from_bytes, unquote_to_bytes

from agent.core.model import Metadata, Status, Transport
from agent.errors import TransportError

Headers = list[tuple[bytes, bytes]]

CONTENT_TYPE = b"application/grpc"
USER_AGENT = b"grpc-python-dra-node-agent"
DETAILS = b"grpc-status-details-bin"

# Written by the transport itself, never passed on as metadata.
_RESERVED = frozenset(
    (
        b"te",
        b"content-type",
        b"user-agent",
        b"connection",
        b"host",
        b"grpc-timeout",
        b"grpc-encoding",
        b"grpc-accept-encoding",
        b"grpc-message-type",
        b"grpc-status",
        b"grpc-message",
    )
)
_KEY = re.compile(rb"[0-9a-z_.\-]+")
# grpc-go answers a control character in a value with a stream error.
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT_DIGITS = 10**8
# Space to tilde without percent: what grpc-message may carry unescaped.
_PLAIN = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) != "%")
_TOO_LONG = " [cut]"


def first(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """First value of a header, None where it is absent."""
    for key, value in headers:
        if key == name:
            return value
    return None


def decode_metadata(headers: Iterable[tuple[bytes, bytes]], *, keep_details: bool) -> Metadata:
    """What the application set, in wire order.

    A `-bin` value that is not base64 stays text and is forwarded as it came.
    """
    found: list[tuple[str, str | bytes]] = []
    for key, value in headers:
        if key.startswith(b":") or key in _RESERVED:
            continue
        if key == DETAILS and not keep_details:
            continue
        name = key.decode("latin-1")
        if key.endswith(b"-bin"):
            found.extend((name, part) for part in _decode_bin(value))
        else:
            found.append((name, value.decode("latin-1")))
    return tuple(found)


def encode_metadata(metadata: Metadata) -> Headers:
    """Header fields of metadata. What no gRPC peer would accept is left out, not an error."""
    headers: Headers = []
    for name, value in metadata:
        key = name.encode("latin-1", "replace")
        if not _KEY.fullmatch(key) or key in _RESERVED:
            continue
        raw = _encode_bin(value) if isinstance(value, bytes) else value.encode("latin-1", "replace")
        if _BAD_VALUE.search(raw) is None:
            headers.append((key, raw))
    return headers


def decode_timeout(value: bytes) -> float:
    """Seconds of a grpc-timeout header; ValueError when it is malformed."""
    match = _TIMEOUT.fullmatch(value)
    if match is None:
        raise ValueError("malformed grpc-timeout")
    return int(match[1]) * _UNITS[match[2]]


def encode_timeout(seconds: float) -> bytes:
    """A grpc-timeout header: milliseconds, rounded down: the peer never has more than we."""
    milliseconds = int(seconds * 1000)
    if milliseconds < 10:
        return b"%du" % max(1, int(seconds * 1_000_000))
    if milliseconds < _TIMEOUT_DIGITS:
        return b"%dm" % milliseconds
    return b"%dS" % min(int(seconds), _TIMEOUT_DIGITS - 1)


def encode_status(status: Status | None, trailers: Metadata, limit: int) -> Headers:
    """Trailers of a call; None is OK. The message is cut where the peer takes fewer bytes."""
    extra = encode_metadata(trailers)
    if status is None:
        return [(b"grpc-status", b"0"), *extra]
    headers: Headers = [(b"grpc-status", b"%d" % status.code)]
    if status.details is not None:
        extra.append((DETAILS, _encode_bin(status.details)))
    if status.message:
        # 32 bytes of overhead per field: RFC 9113, 6.5.2.
        used = sum(len(key) + len(value) + 32 for key, value in extra) + 256
        headers.append((b"grpc-message", _encode_message(status.message, limit - used)))
    return headers + extra


def decode_status(headers: Headers) -> tuple[Status | None, Metadata]:
    """Status (None is OK) and trailing metadata; TransportError where there is no status."""
    raw = first(headers, b"grpc-status")
    if raw is None:
        raise protocol("the answer has no grpc-status")
    if not raw.isdigit() or len(raw) > 9:
        raise protocol(f"malformed grpc-status {raw[:32]!r}")
    code = int(raw)
    if code == 0:
        return None, decode_metadata(headers, keep_details=True)
    trailers = decode_metadata(headers, keep_details=False)
    message = unquote_to_bytes(first(headers, b"grpc-message") or b"").decode("utf-8", "replace")
    details = first(headers, DETAILS)
    parts = _decode_bin(details) if details is not None else []
    binary = next((part for part in parts if isinstance(part, bytes)), None)
    return Status(code=code, message=message, details=binary, trailers=trailers), trailers


def protocol(text: str) -> TransportError:
    """The error for an answer that is not gRPC."""
    return TransportError(Transport.PROTOCOL, text, sent=True)


def _encode_message(message: str, limit: int) -> bytes:
    raw = message.encode("utf-8", "replace")
    encoded = quote_from_bytes(raw, safe=_PLAIN)
    if len(encoded) <= limit:
        return encoded.encode("ascii")
    room = max(0, limit - len(_TOO_LONG))
    # A percent escape is three bytes: never cut inside one.
    kept = re.sub(r"%[0-9A-F]?$", "", encoded[:room])
    return unescaped_tail(kept).encode("ascii") + _TOO_LONG.encode("ascii")


def unescaped_tail(encoded: str) -> str:
    """Drop the last bytes of an escaped text that are not a whole UTF-8 character."""
    text = unquote_to_bytes(encoded).decode("utf-8", "ignore")
    return quote_from_bytes(text.encode("utf-8"), safe=_PLAIN)


def _encode_bin(value: bytes) -> bytes:
    return b64encode(value).rstrip(b"=")


def _decode_bin(value: bytes) -> list[bytes | str]:
    parts: list[bytes | str] = []
    for part in value.split(b","):
        text = part.strip()
        try:
            parts.append(b64decode(text + b"=" * (-len(text) % 4), validate=True))
        except binascii.Error:
            parts.append(text.decode("latin-1"))
    return parts
