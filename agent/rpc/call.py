"""The values that cross the border of this package: one call in, one answer out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from agent.core.model import Metadata, Status, Transport
from agent.errors import TransportError

# gRPC status codes, by the names of the specification.
OK = 0
CANCELLED = 1
DEADLINE_EXCEEDED = 4
RESOURCE_EXHAUSTED = 8
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14

MAX_MESSAGE = 16 * 1024 * 1024
"""Largest message, both ways, in bytes. Kubelet and the driver helper stop at 4 MiB."""


def service_of(method: str) -> str:
    """`pkg.Service` of `/pkg.Service/Method`."""
    return method.strip("/").rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Request:
    """One incoming unary call."""

    method: str  # "/pkg.Service/Method"
    metadata: Metadata  # without reserved headers
    deadline: float | None  # loop.time() at which the caller gives up
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call ends with: a body, or a status that is not OK.

    `trailers` are those of either; when they are empty, those of the status are sent.
    """

    body: bytes | None = None
    status: Status | None = None
    initial: Metadata = ()
    trailers: Metadata = ()

    @property
    def code(self) -> int:
        """Number of its gRPC status."""
        return self.status.code if self.status else OK


class ServerStream(Protocol):
    """One incoming call of any cardinality, message by message.

    `recv` and the sending methods raise TransportError(CANCELLED) when the caller went away.
    """

    method: str
    metadata: Metadata
    deadline: float | None

    async def recv(self) -> bytes | None:
        """Next message; None when the caller has sent its last one."""

    async def send_initial(self, metadata: Metadata = ()) -> None:
        """Send the headers now; without it they go with the first message."""

    async def send(self, body: bytes) -> None:
        """Send one message."""

    async def end(self, status: Status | None = None, trailers: Metadata = ()) -> None:
        """End the call; None is OK. Without anything sent before it is a trailers-only answer."""


Handler = Callable[[Request], Awaitable[Answer]]
StreamHandler = Callable[[ServerStream], Awaitable[None]]

_CODES = {
    Transport.REFUSED: UNAVAILABLE,
    Transport.GONE: UNAVAILABLE,
    Transport.RESET: UNAVAILABLE,
    Transport.DEADLINE: DEADLINE_EXCEEDED,
    Transport.PROTOCOL: INTERNAL,
    Transport.CANCELLED: CANCELLED,
}


def status_of(error: TransportError) -> Status:
    """The status that a caller gets for a call without an answer, as grpc-go would word it."""
    return Status(code=_CODES[error.kind], message=error.text)
