"""One call that came in: from its headers to its trailers, whatever happens between."""

from __future__ import annotations

import asyncio
import logging

from h2.errors import ErrorCodes

from agent.core.model import Metadata, Status
from agent.errors import TransportError
from agent.rpc import call
from agent.rpc.headers import (
    CONTENT_TYPE,
    Headers,
    decode_metadata,
    decode_timeout,
    encode_metadata,
    encode_status,
    first,
)
from agent.rpc.stream import Stream, Unacceptable

log = logging.getLogger(__name__)

_OK_HEADERS: Headers = [(b":status", b"200"), (b"content-type", CONTENT_TYPE)]


class Incoming:
    """The server's side of one call. Implements `call.ServerStream`."""

    def __init__(self, stream: Stream, headers: Headers) -> None:
        self._stream = stream
        self._headers = headers
        self._began = False
        self.ended = False
        self.method = (first(headers, b":path") or b"").decode("latin-1")
        self.metadata: Metadata = ()
        self.deadline: float | None = None

    async def serve(
        self, unary: call.Handler | None, stream: call.StreamHandler, *, now: float
    ) -> None:
        """Run the handler until the call has its answer or its caller is gone."""
        try:
            if self._refused(now):
                return
            async with asyncio.timeout_at(self.deadline) as limit:
                if unary is None:
                    await stream(self)
                else:
                    await self._unary(unary)
            if not self.ended:
                raise AssertionError("the handler ended without a status")
        except Unacceptable as exc:
            await self._fail(Status(exc.code, exc.text))
        except TransportError as exc:
            await self._fail(call.status_of(exc))
        except Exception as exc:
            if isinstance(exc, TimeoutError) and limit.expired():
                await self._fail(Status(call.DEADLINE_EXCEEDED, "deadline exceeded"))
            else:
                log.exception("handler of %r failed", self.method)
                await self._fail(
                    Status(call.INTERNAL, "dra-node-agent: internal error, see its log")
                )
        finally:
            # NO_ERROR after a whole answer: the caller need not send the rest (RFC 9113, 8.1).
            self._stream.reset(ErrorCodes.NO_ERROR if self.ended else ErrorCodes.CANCEL)

    def _refused(self, now: float) -> bool:
        if first(self._headers, b":method") != b"POST":
            self._refuse(b"405", Status(call.INTERNAL, "the HTTP method is not POST"))
        elif not (first(self._headers, b"content-type") or b"").startswith(CONTENT_TYPE):
            self._refuse(b"415", Status(call.INTERNAL, "the content-type is not application/grpc"))
        else:
            timeout = first(self._headers, b"grpc-timeout")
            try:
                self.deadline = None if timeout is None else now + decode_timeout(timeout)
            except ValueError as exc:
                self._refuse(b"200", Status(call.INTERNAL, str(exc)))
            self.metadata = decode_metadata(self._headers, keep_details=True)
        return self.ended

    def _refuse(self, http_status: bytes, status: Status) -> None:
        self.ended = True
        headers = [(b":status", http_status), (b"content-type", CONTENT_TYPE)]
        self._stream.put_headers(headers + self._trailers(status, ()), end=True)
        self._stream.flush()

    async def _unary(self, handler: call.Handler) -> None:
        body = await self._stream.recv_message()
        if body is None:
            raise Unacceptable(call.INTERNAL, "the caller sent no message")
        answer = await handler(call.Request(self.method, self.metadata, self.deadline, body))
        trailers = answer.trailers
        if answer.status is not None:
            trailers = trailers or answer.status.trailers
            if answer.initial:
                self._begin(answer.initial)
        else:
            self._begin(answer.initial)
            await self._stream.send_message(answer.body or b"", hold=True)
        await self.end(answer.status, trailers)

    async def _fail(self, status: Status) -> None:
        if not self.ended:
            try:
                await self.end(status)
            except TransportError as exc:
                log.debug("no answer to %r: %s", self.method, exc)

    def _trailers(self, status: Status | None, trailers: Metadata) -> Headers:
        limit = self._stream.connection.peer_header_limit
        return encode_status(status, trailers, limit)

    def _begin(self, metadata: Metadata) -> None:
        self._began = True
        self._stream.put_headers(_OK_HEADERS + encode_metadata(metadata))

    # call.ServerStream

    async def recv(self) -> bytes | None:
        """Next message; None when the caller has sent its last one."""
        return await self._stream.recv_message()

    async def send_initial(self, metadata: Metadata = ()) -> None:
        """Send the headers now."""
        self._begin(metadata)
        self._stream.flush()

    async def send(self, body: bytes) -> None:
        """Send one message, after the headers if they have not been sent."""
        if not self._began:
            self._begin(())
        await self._stream.send_message(body)

    async def end(self, status: Status | None = None, trailers: Metadata = ()) -> None:
        """End the call; without anything sent before it is a trailers-only answer."""
        if self.ended:
            raise AssertionError("the call has ended already")
        if status is not None:
            trailers = trailers or status.trailers
        block = self._trailers(status, trailers)
        self._stream.put_headers(block if self._began else _OK_HEADERS + block, end=True)
        self.ended = True
        self._stream.flush()
