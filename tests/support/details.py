"""google.rpc error details as bytes, written by hand as a driver's library would."""

from __future__ import annotations


def field(number: int, value: bytes | str | int) -> bytes:
    """One protobuf field: text and bytes are length-delimited, numbers varints."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def varint(value: int) -> bytes:
    """A number in base 128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def details_bin(*packed: bytes, code: int = 3, message: str = "m") -> bytes:
    """The value of grpc-status-details-bin."""
    return field(1, code) + field(2, message) + b"".join(field(3, one) for one in packed)


def packed(name: str, content: bytes) -> bytes:
    """A google.protobuf.Any."""
    return field(1, f"type.googleapis.com/google.rpc.{name}") + field(2, content)


def error_info(reason: str, domain: str, **metadata: str) -> bytes:
    """ErrorInfo."""
    entries = b"".join(field(3, field(1, k) + field(2, v)) for k, v in metadata.items())
    return packed("ErrorInfo", field(1, reason) + field(2, domain) + entries)


def retry_info(seconds: int, nanos: int = 0) -> bytes:
    """RetryInfo."""
    return packed("RetryInfo", field(1, field(1, seconds) + field(2, nanos)))


def bad_request(*violations: str) -> bytes:
    """BadRequest of one violation: field, description."""
    inner = b"".join(field(number, word) for number, word in enumerate(violations, 1))
    return packed("BadRequest", field(1, inner))


def precondition_failure(*words: str) -> bytes:
    """PreconditionFailure of one violation: type, subject, description."""
    inner = b"".join(field(number, word) for number, word in enumerate(words, 1))
    return packed("PreconditionFailure", field(1, inner))
