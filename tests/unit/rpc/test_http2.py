"""What h2 and hpack need, and that they still need it."""

from __future__ import annotations

import pytest
from h2.connection import H2Connection
from h2.events import RequestReceived
from hpack import Encoder

from agent.core.model import Transport
from agent.errors import TransportError
from agent.rpc import http2
from tests.support.rpc import RESPONSE, Driver, Pair, RawHeaders, RawPeer


def test_large_header_blocks_are_not_huffman_coded() -> None:
    text = b"x" * 10_000
    assert len(http2.PlainEncoder().encode([(b"grpc-message", text)])) > len(text)
    assert len(Encoder().encode([(b"grpc-message", text)])) < len(text), "unmended: hpack changed"


async def test_a_peer_that_speaks_http_1_ends_its_connection_at_once(driver: Driver) -> None:
    http_1 = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"

    async def old(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.writer.write(http_1)

    driver.script = old
    await driver.fails(Transport.RESET)
    assert not driver.channel.connected
    unmended = H2Connection()
    unmended.initiate_connection()
    assert unmended.receive_data(http_1) == [], "unmended: h2 has changed"


async def test_few_closed_streams_are_kept(pair: Pair) -> None:
    for _ in range(http2.CLOSED_STREAMS + 50):
        await pair.call()
    peer = next(iter(pair.server.peers))
    assert peer.protocol is not None
    assert len(peer.protocol.connection._connection._closed_streams) <= http2.CLOSED_STREAMS
    assert H2Connection.MAX_CLOSED_STREAMS == 65_536, "unmended: h2 has changed"


async def test_a_late_frame_of_a_forgotten_stream_is_no_connection_error(
    driver: Driver,
) -> None:
    async def silent(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        return

    driver.script = silent
    with pytest.raises(TransportError):
        await driver.call(timeout=0.05)
    driver.script = None
    for _ in range(http2.CLOSED_STREAMS + 50):
        await driver.call()
    peer = driver.server.peers[0]
    first = peer.of(RequestReceived)[0].stream_id
    block = peer.h2.encoder.encode(RESPONSE)
    peer.writer.write(
        len(block).to_bytes(3, "big") + b"\x01\x04" + first.to_bytes(4, "big") + block
    )
    assert (await driver.call()).body == b"fine"
    assert driver.channel.connected
