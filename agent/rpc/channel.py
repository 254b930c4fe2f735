"""One eager connection to a driver's socket, as kubelet keeps one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from agent import aio
from agent.core.model import Metadata, Transport
from agent.errors import TransportError
from agent.rpc.call import Answer, ServerStream
from agent.rpc.http2 import h2_config
from agent.rpc.mend import Protocol, Sink
from agent.rpc.outgoing import Outgoing
from agent.rpc.sockets import PATH_LIMIT

_CONFIG = h2_config(client=True)


class Channel:
    """Calls over one connection at a time. It never connects by itself: `connect()` does."""

    def __init__(self, path: str, *, on_change: Callable[[bool], None] | None = None) -> None:
        """`on_change(connected)` is called at each connect and each loss, also when idle."""
        self.path = path
        self._on_change = on_change
        self._link: _Link | None = None
        self._lock = asyncio.Lock()
        self._tasks = aio.Tasks()

    @property
    def connected(self) -> bool:
        """True while the transport is up and the driver takes new calls."""
        return self._link is not None

    async def connect(self) -> None:
        """Connect unless connected. TransportError: GONE without a file, else REFUSED."""
        async with self._lock:
            if self._link is not None:
                return
            if len(os.fsencode(self.path)) > PATH_LIMIT:
                # libuv would cut the path and connect to whatever has that name.
                raise self._away(Transport.REFUSED, "the path is too long for a socket")
            loop = asyncio.get_running_loop()
            link = _Link(self)
            try:
                await loop.create_unix_connection(lambda: Protocol(link, _CONFIG), self.path)
            except FileNotFoundError as exc:
                raise self._away(Transport.GONE, "no such socket") from exc
            except (OSError, ValueError) as exc:
                text = getattr(exc, "strerror", None) or str(exc)
                raise self._away(Transport.REFUSED, text) from exc
            if not link.up:
                raise self._away(Transport.REFUSED, "closed at once")

    async def unary(
        self, method: str, body: bytes, *, metadata: Metadata = (), timeout: float
    ) -> Answer:
        """One call; a status that is not OK is a value. `timeout` in seconds, also sent along.

        TransportError when no gRPC answer came. Cancelling sends RST_STREAM(CANCEL).
        """
        if timeout <= 0:
            raise TransportError(Transport.DEADLINE, "no time is left for the call", sent=False)
        outgoing = self._outgoing()
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                await outgoing.open(method, metadata, timeout)
                await outgoing.send(body)
                return await outgoing.answer()
        except TimeoutError as exc:
            if not limit.expired():
                raise
            text = f"no answer within {timeout:.3g} s"
            raise TransportError(Transport.DEADLINE, text, sent=outgoing.opened) from exc
        finally:
            outgoing.close()

    async def relay(self, method: str, stream: ServerStream) -> None:
        """Pass one call of any cardinality through, both ways at once, byte for byte.

        TransportError when the driver's side ended without a status; nothing is sent for it.
        """
        timeout = None
        if stream.deadline is not None:
            timeout = max(0.001, stream.deadline - asyncio.get_running_loop().time())
        outgoing = self._outgoing()
        try:
            await outgoing.open(method, stream.metadata, timeout)
            # The driver sees the call at once: a caller may wait before its first message.
            outgoing.stream.flush()
            up = self._tasks.start(f"relay {method}", outgoing.pump_up(stream))
            try:
                await outgoing.pump_down(stream)
            finally:
                up.cancel()
        finally:
            outgoing.close()

    async def close(self) -> None:
        """Close the connection and end all calls."""
        link = self._link
        if link is not None:
            link.shut()
        await self._tasks.close()

    def _outgoing(self) -> Outgoing:
        link = self._link
        if link is None or link.peer is None:
            kind = Transport.REFUSED if os.path.exists(self.path) else Transport.GONE
            raise self._away(kind, "not connected")
        return Outgoing(link.peer)

    def _away(self, kind: Transport, text: str) -> TransportError:
        return TransportError(kind, f"driver socket {self.path}: {text}", sent=False)

    def changed(self, link: _Link, connected: bool) -> None:
        """Called by the connection; a loss counts only for the present one."""
        if connected == (self._link is link):
            return
        self._link = link if connected else None
        if self._on_change is not None:
            self._on_change(connected)


class _Link(Sink):
    """Events of one connection."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.peer: Protocol | None = None
        self.up = False

    def opened(self, peer: Protocol) -> None:
        self.peer = peer
        self.up = True
        self._channel.changed(self, True)

    def going_away(self) -> None:
        self._down()

    def close(self) -> None:
        self._down()

    def _down(self) -> None:
        if self.up:
            self.up = False
            self._channel.changed(self, False)

    def shut(self) -> None:
        """Close from our side."""
        if self.peer is not None:
            self.peer.processor.close("the channel was closed")
