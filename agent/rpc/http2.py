"""h2 4.4 and hpack 4.2 made fit for standing between kubelet and a driver: settings and limits.

Each class says what it mends; tests/unit/rpc/test_http2.py has a canary for each point.
"""

from __future__ import annotations

from typing import Any

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes, Settings
from hpack import Encoder
from hyperframe.frame import Frame, GoAwayFrame

HEADER_LIMIT = 1024 * 1024
"""Largest header block we take, in bytes; announced, and grpc-go servers keep to it by ending the
one call. More than h2's 64 frames of 16 KiB cannot arrive anyway."""

CLOSED_STREAMS = 256
STREAM_WINDOW = 4 * 1024 * 1024
CONNECTION_WINDOW = 4 * 1024 * 1024
MAX_STREAMS = 1000
INITIAL_WINDOW = 65_535  # RFC 9113, 6.9.2
_FRAME_HEADER = 9  # bytes; the first three are the length


def h2_config(*, client: bool) -> H2Configuration:
    """Headers stay bytes, so that one which is not ASCII cannot end the connection.

    Validation is off, as in grpclib: it costs a third of h2's time, and kubelet's registration
    connection sends a percent-encoded path as :authority, which must be taken.
    """
    return H2Configuration(
        client_side=client,
        header_encoding=None,
        validate_inbound_headers=False,
        validate_outbound_headers=False,
        normalize_inbound_headers=False,
        normalize_outbound_headers=False,
    )


class PlainEncoder(Encoder):
    """hpack: no Huffman coding. The time of its encoder grows with the square of the length: a text
    of 100 kB stops the event loop for 0.7 s. On a unix socket nothing is saved by it anyway."""

    def encode(self, headers: Any, huffman: bool = False) -> bytes:  # noqa: ANN401 - as hpack has it
        """A header block of literals."""
        return super().encode(headers, huffman=False)


class Frames(FrameBuffer):
    """h2: a frame that is too large is refused as soon as its length is known. h2 waits for all of
    it first, up to 16 MiB: a peer that speaks HTTP/1 would hold its calls until their deadline."""

    def __next__(self) -> Frame:
        if len(self._data) >= _FRAME_HEADER:
            self._validate_frame_length(int.from_bytes(self._data[:3], "big"))
        return super().__next__()


class Http2(H2Connection):
    """h2: larger header blocks, a GOAWAY that lets calls finish, fewer closed streams kept."""

    MAX_CLOSED_STREAMS = CLOSED_STREAMS
    DEFAULT_MAX_HEADER_LIST_SIZE = HEADER_LIMIT

    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config=config)
        self.encoder = PlainEncoder()
        self.incoming_buffer = Frames(server=not config.client_side)
        self.local_settings = Settings(
            client=config.client_side,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEADER_LIMIT,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            },
        )

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[events.Event]]:
        # h2 goes to CLOSED here and refuses the answers that last_stream_id still promises.
        event = events.ConnectionTerminated()
        event.error_code = frame.error_code
        event.last_stream_id = frame.last_stream_id
        return [], [event]

    def _stream_is_closed_by_reset(self, stream_id: int) -> bool:
        # A late frame of a stream that is no longer remembered must not end the connection.
        return stream_id not in self.streams or super()._stream_is_closed_by_reset(stream_id)
