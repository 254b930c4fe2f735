"""A gRPC server on one unix socket: unary methods by name, all other calls as streams of bytes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, cast

from grpclib import protocol

from agent import aio
from agent.rpc import sockets
from agent.rpc.call import Answer, Handler, Request, ServerStream, StreamHandler, status_of
from agent.rpc.http2 import h2_config
from agent.rpc.incoming import Incoming
from agent.rpc.mend import Protocol, Sink
from agent.rpc.stream import Stream

__all__ = ["Answer", "Handler", "Request", "Server", "ServerStream", "StreamHandler", "status_of"]

_CONFIG = h2_config(client=False)


class Server:
    """Serves one socket. Its file is ours: asyncio neither removes it nor unlinks it."""

    def __init__(
        self,
        *,
        unary: Callable[[str], Handler | None],
        stream: StreamHandler,
        on_connect: Callable[[], None] | None = None,
    ) -> None:
        """`unary` gives the handler of a method such as "/pkg.Service/Method", or None."""
        self.unary = unary
        self.stream = stream
        self.on_connect = on_connect
        self.path = ""
        self.in_flight = 0
        self.tasks = aio.Tasks()
        self.peers: set[_Peer] = set()
        self._identity: sockets.Identity | None = None
        self._listener: asyncio.Server | None = None

    async def start(self, path: str) -> None:
        """Bind and listen; UserError when the path cannot be used."""
        loop = asyncio.get_running_loop()
        sock = sockets.bind(path)
        self.path, self._identity = path, sockets.identity(path)
        # Python 3.13 and uvloop unlink the file at close unless told not to; older ones cannot.
        options: dict[str, Any] = {}
        if "cleanup_socket" in inspect.signature(loop.create_unix_server).parameters:
            options["cleanup_socket"] = False
        self._listener = await loop.create_unix_server(
            lambda: Protocol(_Peer(self), _CONFIG), sock=sock, backlog=sockets.BACKLOG, **options
        )

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self.peers)

    @property
    def unanswered(self) -> int:
        """Unary calls in flight, and connections that have not taken all that was written.

        The last of a large answer leaves only as fast as the caller reads: an abort would cut it.
        """
        return self.in_flight + sum(peer.unsent for peer in self.peers)

    @property
    def removed(self) -> bool:
        """True when the socket file is not, or no longer, the one that was bound."""
        return self._identity is None or not sockets.stands(self.path, self._identity)

    def stop_listening(self) -> None:
        """Accept no more connections; open ones go on, and the socket file stays."""
        if self._listener is not None:
            # No wait_closed(): from Python 3.12 on it waits for the connections too.
            self._listener.close()
            self._listener = None

    def abort_connections(self) -> None:
        """Close all connections at once, without GOAWAY."""
        for peer in list(self.peers):
            peer.abort()

    def unlink(self) -> None:
        """Remove the socket file, if it is still the one that was bound. Tried once."""
        made, self._identity = self._identity, None
        if made is not None:
            sockets.unlink(self.path, made)

    async def close(self) -> None:
        """Stop listening, close all connections, remove the file and end all calls."""
        self.stop_listening()
        self.abort_connections()
        self.unlink()
        await self.tasks.close()


class _Peer(Sink):
    """One accepted connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.protocol: Protocol | None = None
        self._calls: dict[protocol.Stream, asyncio.Task[None]] = {}

    def opened(self, peer: Protocol) -> None:
        self.protocol = peer
        self._server.peers.add(self)
        if self._server.on_connect is not None:
            self._server.on_connect()

    def accept(
        self,
        stream: protocol.Stream,
        headers: list[tuple[str, str]],
        release_stream: Callable[[], None],
    ) -> None:
        incoming = Incoming(cast(Stream, stream), headers)  # type: ignore[arg-type]
        task = self._server.tasks.start(incoming.method, self._serve(incoming))
        self._calls[stream] = task

        # Not in the task: one that is cancelled before its first step runs none of its code.
        def ended(_: asyncio.Task[None]) -> None:
            self._calls.pop(stream, None)
            release_stream()

        task.add_done_callback(ended)

    async def _serve(self, incoming: Incoming) -> None:
        server = self._server
        unary = server.unary(incoming.method)
        server.in_flight += unary is not None
        try:
            await incoming.serve(unary, server.stream, now=self._loop.time())
        finally:
            server.in_flight -= unary is not None

    def cancel(self, stream: protocol.Stream) -> None:
        """The caller gave up."""
        task = self._calls.get(stream)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """The caller's connection is gone."""
        self._server.peers.discard(self)
        for task in self._calls.values():
            task.cancel()

    @property
    def unsent(self) -> bool:
        """True while bytes wait for the caller to read."""
        return self.protocol is not None and self.protocol.unsent > 0

    def abort(self) -> None:
        """Close without a word."""
        if self.protocol is not None:
            self.protocol.abort()
