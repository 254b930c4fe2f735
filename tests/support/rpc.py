"""Peers for the tests of agent/rpc: a scripted HTTP/2 peer without mends, and a plain pair."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes

from agent.core.model import Metadata, Transport
from agent.errors import TransportError
from agent.rpc.call import Answer, Handler, Request, ServerStream
from agent.rpc.channel import Channel
from agent.rpc.server import Server
from tests.support.waiting import until

LIMIT = 10.0  # seconds until a wait is a failure
METHOD = "/test.Service/Unary"
RawHeaders = list[tuple[bytes, bytes]]
Script = Callable[["RawPeer", int, RawHeaders], Awaitable[None]]

REQUEST: RawHeaders = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", METHOD.encode()),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]
RESPONSE: RawHeaders = [(b":status", b"200"), (b"content-type", b"application/grpc")]
OK: RawHeaders = [(b"grpc-status", b"0")]


def frame(body: bytes, *, flag: int = 0, size: int | None = None) -> bytes:
    """A gRPC message with its prefix, which may lie."""
    return bytes([flag]) + (len(body) if size is None else size).to_bytes(4, "big") + body


class RawPeer:
    """One HTTP/2 connection on bare h2, without validation, so that it may misbehave."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client: bool
    ) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = H2Connection(
            H2Configuration(
                client_side=client,
                header_encoding=None,
                validate_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_inbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.h2.DEFAULT_MAX_HEADER_LIST_SIZE = 1 << 24
        self.h2.decoder.max_header_list_size = 1 << 24
        self.events: list[Event] = []
        self.eof = False
        self.on_request: Callable[[int, RawHeaders], Awaitable[None]] | None = None
        self.h2.initiate_connection()
        self.flush()

    @classmethod
    async def connect(cls, path: str) -> RawPeer:
        """A client; `run()` is to be started beside it."""
        return cls(*await asyncio.open_unix_connection(path), client=True)

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    async def run(self) -> None:
        """Read until the other side closes."""
        while data := await self._read():
            for event in self.h2.receive_data(data):
                self.events.append(event)
                if isinstance(event, DataReceived):
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if isinstance(event, RequestReceived) and self.on_request is not None:
                    await self.on_request(event.stream_id, list(event.headers))
            self.flush()
        self.eof = True

    async def _read(self) -> bytes:
        try:
            return await self.reader.read(65536)
        except OSError:
            return b""

    def request(self, *chunks: bytes, headers: RawHeaders = REQUEST, end: bool = True) -> int:
        """Send a request; returns its stream."""
        stream_id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream_id, headers, end_stream=end and not chunks)
        for index, chunk in enumerate(chunks):
            self.h2.send_data(stream_id, chunk, end_stream=end and index == len(chunks) - 1)
        self.flush()
        return stream_id

    def answer(self, stream_id: int, body: bytes, trailers: RawHeaders = OK) -> None:
        """Send a whole answer, framed by the caller."""
        self.h2.send_headers(stream_id, RESPONSE)
        self.h2.send_data(stream_id, body)
        self.h2.send_headers(stream_id, trailers, end_stream=True)
        self.flush()

    def of(self, kind: type[Event], stream_id: int | None = None) -> list[Any]:
        """Events of a kind, of one stream."""
        return [
            event
            for event in self.events
            if isinstance(event, kind)
            and (stream_id is None or getattr(event, "stream_id", None) == stream_id)
        ]

    async def ended(self, stream_id: int) -> dict[bytes, bytes]:
        """Headers and trailers of an answer, once it has ended."""
        await until(
            lambda: bool(self.of(StreamEnded, stream_id) or self.of(StreamReset, stream_id)),
            "the end of the answer",
        )
        blocks = self.of(ResponseReceived, stream_id) + self.of(TrailersReceived, stream_id)
        return {key: value for block in blocks for key, value in block.headers}

    def data(self, stream_id: int) -> bytes:
        return b"".join(event.data for event in self.of(DataReceived, stream_id))

    @property
    def goaway(self) -> bool:
        return bool(self.of(ConnectionTerminated))

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


def take_at_once(peer: RawPeer, size: int) -> None:
    """Let the other side send `size` bytes of a call before the first was read."""
    peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size})
    peer.h2.increment_flow_control_window(size)
    peer.flush()


class RawServer:
    """Accepts connections and hands each request to a script."""

    def __init__(self, script: Callable[[RawPeer, int, RawHeaders], Awaitable[None]]) -> None:
        self.script = script
        self.peers: list[RawPeer] = []
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, path: str) -> None:
        self._server = await asyncio.start_unix_server(self._accept, path)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = RawPeer(reader, writer, client=False)

        async def on_request(stream_id: int, headers: RawHeaders) -> None:
            await self.script(peer, stream_id, headers)

        peer.on_request = on_request
        self.peers.append(peer)
        await peer.run()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for peer in self.peers:
            await peer.close()
        await until(lambda: all(peer.eof for peer in self.peers), "the end of raw connections")


class Pair:
    """A server whose handlers a test sets, and a channel to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.requests: list[Request] = []
        self.unary: Handler = self.echo
        self.stream: Callable[[ServerStream], Awaitable[None]] = self.echo_stream
        self.connects = 0
        self.changes: list[bool] = []
        self.server = Server(
            unary=lambda method: self._unary if method == METHOD else None,
            stream=self._stream,
            on_connect=self._connected,
        )
        self.channel = Channel(path, on_change=self.changes.append)

    async def start(self) -> None:
        await self.server.start(self.path)
        await self.channel.connect()

    async def close(self) -> None:
        await self.channel.close()
        await self.server.close()

    async def call(
        self, body: bytes = b"", *, metadata: Metadata = (), timeout: float = LIMIT
    ) -> Answer:
        return await self.channel.unary(METHOD, body, metadata=metadata, timeout=timeout)

    async def echo(self, request: Request) -> Answer:
        return Answer(body=request.body)

    async def echo_stream(self, stream: ServerStream) -> None:
        while (message := await stream.recv()) is not None:
            await stream.send(message)
        await stream.end()

    async def _unary(self, request: Request) -> Answer:
        self.requests.append(request)
        return await self.unary(request)

    async def _stream(self, stream: ServerStream) -> None:
        await self.stream(stream)

    def _connected(self) -> None:
        self.connects += 1


class Driver:
    """A scripted server and our channel to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.server = RawServer(self._run)
        self.channel = Channel(path)
        self.script: Script | None = None
        self.headers: list[RawHeaders] = []

    async def _run(self, peer: RawPeer, stream_id: int, headers: RawHeaders) -> None:
        self.headers.append(headers)
        if self.script is None:
            peer.answer(stream_id, frame(b"fine"))
        else:
            await self.script(peer, stream_id, headers)

    async def call(self, timeout: float = LIMIT) -> Answer:
        return await self.channel.unary(METHOD, b"x", timeout=timeout)

    async def fails(self, kind: Transport, *, sent: bool = True) -> TransportError:
        with pytest.raises(TransportError) as caught:
            await self.call()
        assert (caught.value.kind, caught.value.sent) == (kind, sent)
        return caught.value
