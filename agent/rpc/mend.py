"""grpclib 0.4.9 made fit for standing between kubelet and a driver.

Only grpclib's protocol layer is used (frames, flow control, connection state); its `Server`,
`Channel` and metadata code are not. Each class says what it mends; tests/unit/rpc/test_mend.py has
a canary for each point, which fails when grpclib changes. What h2 needs is in http2.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from grpclib import protocol
from grpclib.config import Configuration
from h2 import events
from h2.config import H2Configuration
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from agent.core.model import Transport
from agent.rpc.http2 import CONNECTION_WINDOW, HEADER_LIMIT, INITIAL_WINDOW, Http2
from agent.rpc.stream import Stream

log = logging.getLogger(__name__)

_CONFIG = Configuration()


class Connection(protocol.Connection):
    """grpclib: a closed connection wakes those who wait to write, and can be flushed."""

    closed = False
    draining = False  # GOAWAY came: no new streams

    def flush(self) -> None:
        """Hand queued bytes to the transport; nothing happens once it is closed."""
        data = self._connection.data_to_send()
        if data and not self.closed:
            self._transport.write(data)

    def ack(self, stream_id: int, size: int) -> None:
        """Give flow control credit back; a closed connection needs none."""
        if not self.closed:
            super().ack(stream_id, size)

    def create_stream(
        self, *, stream_id: int | None = None, wrapper: object | None = None
    ) -> Stream:
        """A stream of ours instead of grpclib's."""
        return Stream(self, self._connection, self._transport, stream_id=stream_id)

    def close(self) -> None:
        """Close the transport once what was written is out."""
        if not self.closed:
            self.closed = True
            super().close()
            self.write_ready.set()
            self.stream_close_waiter.set()

    @property
    def peer_header_limit(self) -> int:
        """Largest header block that the peer takes, in bytes."""
        return self._connection.remote_settings.max_header_list_size or HEADER_LIMIT


class Sink(protocol.AbstractHandler):
    """What a side of a connection does with its events."""

    def opened(self, peer: Protocol) -> None:
        """The transport is up."""

    def going_away(self) -> None:
        """The peer takes no new calls; those in flight go on."""

    def accept(
        self,
        stream: protocol.Stream,
        headers: list[tuple[str, str]],
        release_stream: Callable[[], None],
    ) -> None:
        """A new call came in."""

    def cancel(self, stream: protocol.Stream) -> None:
        """The peer ended one call."""

    def close(self) -> None:
        """The connection is lost."""


class Processor(protocol.EventsProcessor):
    """grpclib: GOAWAY ends only what was not processed; unknown events are no error."""

    connection: Connection
    handler: Sink

    def register(self, stream: protocol.Stream) -> Callable[[], None]:
        """Follow a stream until the returned function is called."""
        release = super().register(stream)

        def release_stream() -> None:
            release()
            if self.connection.draining and not self.streams:
                self.close("the connection has ended after GOAWAY")

        return release_stream

    def process(self, event: events.Event) -> None:
        """Dispatch one event; grpclib raises on those it does not know."""
        processors = getattr(self, "processors", None)
        known = processors.get(event.__class__) if processors else None
        if known is not None:
            known(event)

    def process_stream_reset(self, event: events.StreamReset) -> None:
        """RST_STREAM; REFUSED_STREAM promises that nothing was processed (RFC 9113, 8.7)."""
        stream = self.streams.get(event.stream_id or 0)
        if stream is None:
            return
        code = event.error_code
        name = code.name if isinstance(code, ErrorCodes) else str(code)
        refused = code == ErrorCodes.REFUSED_STREAM
        text = f"the stream was ended by the peer: {name}"
        cast(Stream, stream).lose(Transport.RESET, text, sent=not refused)
        self.handler.cancel(stream)

    def process_connection_terminated(self, event: events.ConnectionTerminated) -> None:
        """GOAWAY: what the peer will not answer ends, the rest goes on."""
        self.connection.draining = True
        if self.connection._connection.config.client_side:
            last = event.last_stream_id or 0
            for stream_id, stream in list(self.streams.items()):
                if stream_id > last:
                    text = "the peer went away before it saw the call"
                    cast(Stream, stream).lose(Transport.RESET, text, sent=False)
        self.handler.going_away()
        self.connection.stream_close_waiter.set()
        if not self.streams:
            self.close("the peer went away")


class Protocol(protocol.H2Protocol):
    """grpclib: own settings, no keepalive pings, and no exception reaches the transport."""

    connection: Connection
    processor: Processor
    handler: Sink

    def __init__(self, handler: Sink, config: H2Configuration) -> None:
        super().__init__(handler, _CONFIG, config)
        self._raw: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface and the settings."""
        self._raw = cast(asyncio.Transport, transport)
        http2 = Http2(self.h2_config)
        http2.initiate_connection()
        http2.increment_flow_control_window(CONNECTION_WINDOW - INITIAL_WINDOW)
        self.connection = Connection(http2, self._raw, config=self.config)
        self.connection.flush()
        self.processor = Processor(self.handler, self.connection)
        self.handler.opened(self)

    def data_received(self, data: bytes) -> None:
        """Feed h2; whatever goes wrong ends this connection and nothing else."""
        if self.connection.closed:
            return
        try:
            received = self.connection.feed(data)
            self.connection.flush()
            for event in received:
                self.processor.process(event)
            self.connection.flush()
        except ProtocolError as exc:
            self.connection.flush()
            self.processor.close(f"HTTP/2 protocol error: {exc}")
        except Exception:
            log.exception("connection ended by an unexpected error")
            self.processor.close("internal error")

    def connection_lost(self, exc: BaseException | None) -> None:
        """End every call of the connection."""
        self.processor.close("the peer's connection was lost" + (f": {exc}" if exc else ""))

    @property
    def unsent(self) -> int:
        """Bytes that were written and that the system has not taken yet."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def abort(self) -> None:
        """Close at once: no GOAWAY, nothing more is written."""
        if self._raw is not None:
            self._raw.abort()
