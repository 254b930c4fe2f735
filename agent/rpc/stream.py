"""One HTTP/2 stream of grpclib, with the call-level half rewritten.

grpclib wakes a waiting coroutine by cancelling its task and turning the CancelledError into another
exception, without `uncancel()`; every wait here is on an event instead, and a stream that ended
early says so in `lost`. Nothing but TransportError (and CancelledError from outside) comes out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from grpclib import protocol
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError, TooManyStreamsError

from agent.core.model import Transport
from agent.errors import TransportError
from agent.rpc import call
from agent.rpc.headers import Headers
from agent.rpc.headers import protocol as protocol_error

if TYPE_CHECKING:
    from agent.rpc.mend import Connection, Processor


class Unacceptable(TransportError):
    """A message that we do not take; `code` is the gRPC status that says why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(Transport.PROTOCOL, text, sent=True)
        self.code = code


class Inbox:
    """Received bytes of one stream. Flow control credit is given back only as they are read."""

    def __init__(self, ack: Callable[[int], None]) -> None:
        self._ack = ack
        self._chunks: deque[tuple[bytes, int]] = deque()
        self._taken = bytearray()
        self.ended = False
        self.changed = asyncio.Event()

    def add(self, data: bytes, ack_size: int) -> None:
        """Called by grpclib for each DATA frame."""
        self._chunks.append((data, ack_size))
        self.changed.set()

    def eof(self) -> None:
        """Called by grpclib when the peer has ended its side."""
        self.ended = True
        self.changed.set()

    def unacked_size(self) -> int:
        """Credit to give back for what nobody is going to read."""
        size = sum(ack_size for _, ack_size in self._chunks)
        self._chunks.clear()
        return size

    def take(self, size: int) -> bytes | None:
        """Exactly `size` bytes, less at the end of the stream, None when they are not here yet."""
        while len(self._taken) < size and self._chunks:
            data, ack_size = self._chunks.popleft()
            self._taken += data
            self._ack(ack_size)
        if len(self._taken) < size and not self.ended:
            self.changed.clear()
            return None
        data = bytes(self._taken[:size])
        del self._taken[:size]
        return data


class Stream(protocol.Stream):
    """A stream of either side."""

    connection: Connection
    buffer: Inbox  # type: ignore[assignment]  # grpclib names its own class
    lost: tuple[Transport, str, bool] | None = None

    def init_stream(self, stream_id: int, connection: protocol.Connection) -> None:
        """Give the stream its number and its inbox."""
        self.id = stream_id
        self.buffer = Inbox(partial(connection.ack, stream_id))

    # Endings

    def lose(self, kind: Transport, text: str, *, sent: bool) -> None:
        """End the stream early: everything that waits on it raises TransportError."""
        if self.lost is None:
            self.lost = (kind, text, sent)
        self.headers_received.set()
        self.trailers_received.set()
        self.window_updated.set()
        if self.id is not None:
            self.buffer.changed.set()

    def __terminated__(self, reason: str) -> None:
        self.lose(Transport.RESET, reason, sent=True)

    def __ended__(self) -> None:
        self.buffer.eof()
        self.trailers_received.set()

    def reset(self, code: ErrorCodes = ErrorCodes.CANCEL) -> None:  # type: ignore[override]  # theirs waits
        """Tell the peer that the stream is over, unless it already is."""
        if self.id is not None and self.closable:
            self._h2_connection.reset_stream(self.id, error_code=code)
            self.flush()

    def _error(self) -> TransportError:
        kind, text, sent = self.lost or (Transport.RESET, "the connection is closed", True)
        return TransportError(kind, text, sent=sent)

    # Receiving

    async def recv_headers(self) -> Headers:  # type: ignore[override]
        """Header block of the answer."""
        await self.headers_received.wait()
        if self.headers is None:
            raise self._error()
        return cast(Headers, self.headers)

    async def recv_trailers(self) -> Headers:  # type: ignore[override]
        """Trailer block; TransportError when the stream ended without one."""
        await self.trailers_received.wait()
        if self.trailers is None:
            raise self._error() if self.lost else protocol_error("the answer has no trailers")
        return cast(Headers, self.trailers)

    async def recv_message(self) -> bytes | None:
        """Next length-prefixed message, None at the end of the stream."""
        head = await self._read(5)
        if not head:
            return None
        size = int.from_bytes(head[1:], "big")
        if len(head) == 5 and head[0]:
            raise Unacceptable(call.UNIMPLEMENTED, "a compressed message that nobody asked for")
        if size > call.MAX_MESSAGE:
            # grpc-go's words, which the rules know.
            text = f"received message larger than max ({size} vs. {call.MAX_MESSAGE})"
            raise Unacceptable(call.RESOURCE_EXHAUSTED, text)
        body = await self._read(size) if size else b""
        if len(head) < 5 or len(body) < size:
            raise protocol_error("the stream ended in the middle of a message")
        return body

    async def _read(self, size: int) -> bytes:
        while (data := self.buffer.take(size)) is None:
            if self.lost is not None:
                raise self._error()
            await self.buffer.changed.wait()
        return data

    # Sending

    async def open(self, headers: Headers, processor: Processor) -> Callable[[], None]:
        """Open the stream as a client; what is written goes out with the next flush.

        TransportError with sent=False when the connection takes no new stream.
        """
        while True:
            await self.connection.write_ready.wait()
            if self.connection.closed or self.connection.draining:
                text = "the connection was closed before the call was sent"
                raise TransportError(Transport.RESET, text, sent=False)
            try:
                stream_id = self._h2_connection.get_next_available_stream_id()
                self._h2_connection.send_headers(stream_id, headers)
            except TooManyStreamsError:
                self.connection.stream_close_waiter.clear()
                await self.connection.stream_close_waiter.wait()
            except ProtocolError as exc:
                raise TransportError(Transport.RESET, str(exc), sent=False) from exc
            else:
                self.init_stream(stream_id, self.connection)
                return processor.register(self)

    def put_headers(self, headers: Headers, *, end: bool = False) -> None:
        """Queue a header block."""
        # h2 would open a new stream for one that it has forgotten.
        if self.lost is not None or self.id not in self._h2_connection.streams:
            raise self._error()
        self._h2(self._h2_connection.send_headers, self.id, headers, end_stream=end)

    def put_data(self, data: memoryview, *, end: bool) -> int:
        """Queue as much as the peer's windows take; returns the number of bytes."""
        if self.lost is not None:
            raise self._error()
        done = 0
        while done < len(data):
            window = self._h2(self._h2_connection.local_flow_control_window, self.id)
            size = min(window, self._h2_connection.max_outbound_frame_size, len(data) - done)
            if size <= 0:
                break
            chunk = data[done : done + size]
            done += size
            last = end and done == len(data)
            self._h2(self._h2_connection.send_data, self.id, chunk, end_stream=last)
        return done

    async def send_message(self, body: bytes, *, end: bool = False, hold: bool = False) -> None:
        """Send one message; returns when all of it is handed to the transport.

        With `hold` the last of it waits for the caller's own flush, to go out in one write.
        """
        left = memoryview(b"\0" + len(body).to_bytes(4, "big") + body)
        while True:
            await self.connection.write_ready.wait()
            self.window_updated.clear()
            left = left[self.put_data(left, end=end) :]
            if not (left or hold):
                self.flush()
            if not left:
                return
            self.flush()
            await self.window_updated.wait()

    def put_end(self) -> None:
        """Queue the end of our side."""
        self._h2(self._h2_connection.end_stream, self.id)

    def flush(self) -> None:
        """Hand everything queued on the connection to the transport."""
        self.connection.flush()

    def _h2(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - h2's own
        try:
            return function(*args, **kwargs)
        except ProtocolError as exc:
            if self.lost is not None:
                raise self._error() from exc
            raise TransportError(Transport.RESET, str(exc) or repr(exc), sent=True) from exc
