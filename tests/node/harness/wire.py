"""gRPC calls as raw bytes: what a driver or an agent answers, with fields no stub knows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.encoding.base import CodecBase

PREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
UNPREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"


class _Raw(CodecBase):
    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


def call(socket: Path, method: str, request: bytes, timeout: float = 10) -> bytes:
    """One unary call over a unix socket; raises grpclib's GRPCError."""

    async def run() -> bytes:
        channel = Channel(path=str(socket), codec=_Raw())
        try:
            answer: bytes = await UnaryUnaryMethod[bytes, bytes](channel, method, bytes, bytes)(
                request, timeout=timeout
            )
        finally:
            channel.close()
        return answer

    return asyncio.run(run())


def field(number: int, content: str | bytes) -> bytes:
    """A length-delimited protobuf field: a string, or a message made of fields."""
    raw = content.encode() if isinstance(content, str) else content
    return bytes([number << 3 | 2]) + _varint(len(raw)) + raw


def flag(number: int) -> bytes:
    """A bool field that is true."""
    return bytes([number << 3, 1])


def claims_request(*claims: dict[str, Any]) -> bytes:
    """The request of prepare and unprepare for ResourceClaim objects."""
    found = (claim["metadata"] for claim in claims)
    return b"".join(
        field(1, field(1, m["namespace"]) + field(2, m["uid"]) + field(3, m["name"])) for m in found
    )


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
