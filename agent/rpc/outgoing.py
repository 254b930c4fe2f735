"""The client's side of one call: headers out, answer in."""

from __future__ import annotations

import logging
from collections.abc import Callable

from h2.errors import ErrorCodes

from agent.core.model import Metadata, Status
from agent.errors import TransportError
from agent.rpc.call import Answer, ServerStream
from agent.rpc.headers import (
    CONTENT_TYPE,
    USER_AGENT,
    Headers,
    decode_metadata,
    decode_status,
    encode_metadata,
    encode_timeout,
    first,
)
from agent.rpc.headers import protocol as protocol_error
from agent.rpc.mend import Protocol
from agent.rpc.stream import Stream, Unacceptable

log = logging.getLogger(__name__)


class Outgoing:
    """One call on a connection. `close()` is always due, also after cancellation."""

    def __init__(self, peer: Protocol) -> None:
        self._peer = peer
        self._release: Callable[[], None] | None = None
        self.stream: Stream = peer.connection.create_stream()

    @property
    def opened(self) -> bool:
        """True when the driver may have seen the call."""
        return self._release is not None

    async def open(self, method: str, metadata: Metadata, timeout: float | None) -> None:
        """Queue the headers."""
        headers: Headers = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", method.encode("latin-1")),
            (b":authority", b"localhost"),
            (b"te", b"trailers"),
            (b"content-type", CONTENT_TYPE),
            (b"user-agent", USER_AGENT),
        ]
        if timeout is not None:
            headers.append((b"grpc-timeout", encode_timeout(timeout)))
        headers += encode_metadata(metadata)
        self._release = await self.stream.open(headers, self._peer.processor)

    async def send(self, body: bytes) -> None:
        """Send the one message; a driver that answers before it has read all has answered."""
        try:
            await self.stream.send_message(body, end=True)
        except TransportError:
            if self.stream.headers is None:
                raise

    def close(self) -> None:
        """End the call on the wire, if it has not ended."""
        if self._release is not None:
            self.stream.reset(ErrorCodes.CANCEL)
            self._release()
            self._release = None

    async def answer(self) -> Answer:
        """Receive the answer of a unary call."""
        headers = await self._headers()
        if first(headers, b"grpc-status") is not None:
            status, trailers = decode_status(headers)
            if status is None:
                raise protocol_error("the answer has no message")
            return Answer(status=status, trailers=trailers)
        initial = decode_metadata(headers, keep_details=True)
        try:
            body = await self.stream.recv_message()
            extra = body is not None and await self.stream.recv_message() is not None
        except Unacceptable as exc:
            return Answer(status=Status(exc.code, f"the driver's answer: {exc.text}"))
        if extra:
            raise protocol_error("more than one message answered a unary call")
        status, trailers = decode_status(await self.stream.recv_trailers())
        if status is None and body is None:
            raise protocol_error("the answer has no message")
        return Answer(
            body=body if status is None else None, status=status, initial=initial, trailers=trailers
        )

    async def pump_up(self, caller: ServerStream) -> None:
        """Pass the caller's side on, each message as soon as it is whole."""
        while True:
            try:
                message = await caller.recv()
            except TransportError as exc:
                # Wakes the other direction, which ends the call.
                self.stream.lose(exc.kind, exc.text, sent=True)
                return
            try:
                if message is None:
                    self.stream.put_end()
                    self.stream.flush()
                    return
                await self.stream.send_message(message)
            except TransportError as exc:
                # A driver may answer early; the other direction sees what it said.
                log.debug("the driver reads no more: %s", exc)
                return

    async def pump_down(self, caller: ServerStream) -> None:
        """Pass the driver's side on, each message as soon as it is whole."""
        headers = await self._headers()
        if first(headers, b"grpc-status") is not None:
            await caller.end(*decode_status(headers))
            return
        await caller.send_initial(decode_metadata(headers, keep_details=True))
        while (message := await self.stream.recv_message()) is not None:
            await caller.send(message)
        await caller.end(*decode_status(await self.stream.recv_trailers()))

    async def _headers(self) -> Headers:
        headers = await self.stream.recv_headers()
        status = first(headers, b":status")
        if status != b"200":
            raise protocol_error(f"HTTP status {status!r} instead of a gRPC answer")
        # grpclib answers an unknown method without a content-type: the status tells enough.
        kind = first(headers, b"content-type")
        if first(headers, b"grpc-status") is None and not (kind or b"").startswith(CONTENT_TYPE):
            raise protocol_error(f"content-type {kind!r} instead of application/grpc")
        return headers
