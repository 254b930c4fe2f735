"""One connection to a driver: its state, its errors, its relay."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from h2.events import ResponseReceived, StreamReset

from agent.core.model import Status, Transport
from agent.errors import TransportError
from agent.rpc import call
from agent.rpc.call import Answer, Request, ServerStream
from agent.rpc.channel import Channel
from agent.rpc.server import Server
from tests.support.rpc import (
    LIMIT,
    METHOD,
    REQUEST,
    Driver,
    Pair,
    RawHeaders,
    RawPeer,
    frame,
)
from tests.support.waiting import until

STREAM = "/test.Service/Stream"


@pytest.fixture
async def front(pair: Pair, sockets: Path) -> AsyncIterator[Channel]:
    """A channel to a server that relays everything to the pair's server."""

    async def relay(stream: ServerStream) -> None:
        await pair.channel.relay(stream.method, stream)

    server = Server(unary=lambda _: None, stream=relay)
    path = str(sockets / "front.sock")
    await server.start(path)
    channel = Channel(path)
    await channel.connect()
    yield channel
    await channel.close()
    await server.close()


@pytest.fixture
async def caller(front: Channel) -> AsyncIterator[RawPeer]:
    """A caller of the relaying server, frame by frame."""
    peer = await RawPeer.connect(front.path)
    task = asyncio.get_running_loop().create_task(peer.run())
    yield peer
    await peer.close()
    await asyncio.wait_for(task, LIMIT)


# State


async def test_no_socket_is_gone_and_no_listener_is_refused(sockets: Path) -> None:
    channel = Channel(str(sockets / "none.sock"))
    stale = str(sockets / "stale.sock")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(stale)
    for path, kind in ((channel.path, Transport.GONE), (stale, Transport.REFUSED)):
        away = Channel(path)
        for attempt in (away.connect(), away.unary(METHOD, b"", timeout=LIMIT)):
            with pytest.raises(TransportError) as caught:
                await attempt
            assert (caught.value.kind, caught.value.sent) == (kind, False)
            assert path in caught.value.text
        assert not away.connected


async def test_a_path_that_is_too_long_is_refused() -> None:
    # uvloop would cut it and connect to whatever has that name.
    with pytest.raises(TransportError, match="too long") as caught:
        await Channel("/tmp/" + "x" * 200).connect()
    assert caught.value.kind is Transport.REFUSED


async def test_changes_are_told_once_also_when_idle(pair: Pair) -> None:
    await asyncio.gather(pair.channel.connect(), pair.channel.connect())
    assert pair.changes == [True]
    pair.server.abort_connections()
    await until(lambda: pair.changes == [True, False], "the loss")
    assert not pair.channel.connected
    await pair.channel.connect()
    assert pair.changes == [True, False, True]
    assert (await pair.call(b"again")).body == b"again"
    await pair.channel.close()
    await pair.channel.close()
    assert pair.changes == [True, False, True, False]


# Unary calls


async def test_a_call_lost_in_flight_was_sent(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.writer.transport.abort()

    driver.script = script
    await driver.fails(Transport.RESET)
    assert not driver.channel.connected


async def test_no_time_left_sends_nothing(driver: Driver) -> None:
    with pytest.raises(TransportError) as caught:
        await driver.call(timeout=0)
    assert (caught.value.kind, caught.value.sent) == (Transport.DEADLINE, False)
    assert not driver.headers


async def test_a_deadline_of_the_driver_is_a_status(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.answer(stream_id, b"", [(b"grpc-status", b"4"), (b"grpc-message", b"slow")])

    driver.script = script
    assert (await driver.call()).status == Status(4, "slow")


async def test_codes_that_nobody_knows_pass(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.answer(stream_id, b"", [(b"grpc-status", b"4711")])

    driver.script = script
    assert (await driver.call()).status == Status(4711, "")


async def test_cancelling_resets_the_stream(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        return

    driver.script = script
    pending = asyncio.get_running_loop().create_task(driver.call())
    await until(lambda: len(driver.headers) == 1, "the call")
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    peer = driver.server.peers[0]
    await until(lambda: bool(peer.of(StreamReset)), "RST_STREAM")
    assert peer.of(StreamReset)[0].error_code == 8
    driver.script = None
    assert (await driver.call()).body == b"fine"


async def test_many_calls_share_the_connection(pair: Pair) -> None:
    calls = [pair.call(b"%d" % n) for n in range(300)]
    answers = await asyncio.gather(*calls)
    assert [answer.body for answer in answers] == [b"%d" % n for n in range(300)]
    assert pair.server.connections == 1


# Relay


async def test_a_relayed_unary_call_is_the_same(pair: Pair, front: Channel) -> None:
    async def handler(request: Request) -> Answer:
        return Answer(request.body * 2, None, (("i", "1"),), (("t-bin", b"\0"),))

    pair.unary = handler
    answer = await front.unary(METHOD, b"ab", metadata=(("k", ""),), timeout=LIMIT)
    assert answer == Answer(b"abab", None, (("i", "1"),), (("t-bin", b"\0"),))
    assert pair.requests[0].metadata == (("k", ""),)
    assert pair.requests[0].deadline is not None


async def test_a_relayed_status_is_the_same(pair: Pair, front: Channel) -> None:
    status = Status(12, "unknown method", b"det", (("t", "u"),))

    async def handler(stream: ServerStream) -> None:
        await stream.end(status)

    pair.stream = handler
    answer = await front.unary("/no/such", b"", timeout=LIMIT)
    assert (answer.status, answer.trailers) == (status, (("t", "u"),))


async def test_messages_go_both_ways_at_once_and_one_by_one(pair: Pair, caller: RawPeer) -> None:
    headers = [(key, STREAM.encode() if key == b":path" else value) for key, value in REQUEST]
    stream_id = caller.request(headers=headers, end=False)
    for number in range(3):
        sent = frame(b"%d" % number)
        caller.h2.send_data(stream_id, sent)
        caller.flush()
        await until(lambda: caller.data(stream_id).endswith(sent), "the echo")  # noqa: B023
    caller.h2.end_stream(stream_id)
    caller.flush()
    assert (await caller.ended(stream_id))[b"grpc-status"] == b"0"
    assert caller.data(stream_id) == b"".join(frame(b"%d" % n) for n in range(3))


async def test_headers_are_relayed_before_the_first_message(pair: Pair, caller: RawPeer) -> None:
    async def handler(stream: ServerStream) -> None:
        await stream.send_initial((("early", "yes"),))
        await asyncio.sleep(LIMIT)

    pair.stream = handler
    headers = [(key, STREAM.encode() if key == b":path" else value) for key, value in REQUEST]
    stream_id = caller.request(headers=headers, end=False)
    await until(lambda: bool(caller.of(ResponseReceived, stream_id)), "the headers")
    assert (b"early", b"yes") in caller.of(ResponseReceived, stream_id)[0].headers


async def test_a_caller_that_leaves_ends_the_drivers_stream(pair: Pair, caller: RawPeer) -> None:
    cancelled = asyncio.Event()

    async def handler(stream: ServerStream) -> None:
        try:
            await stream.send_initial()
            await asyncio.sleep(LIMIT)
        finally:
            cancelled.set()

    pair.stream = handler
    headers = [(key, STREAM.encode() if key == b":path" else value) for key, value in REQUEST]
    stream_id = caller.request(headers=headers, end=False)
    await until(lambda: len(pair.server.tasks) == 1, "the call")
    caller.h2.reset_stream(stream_id, 8)
    caller.flush()
    await asyncio.wait_for(cancelled.wait(), LIMIT)
    assert pair.channel.connected


async def test_a_driver_that_dies_in_a_relay_is_unavailable(pair: Pair, caller: RawPeer) -> None:
    headers = [(key, STREAM.encode() if key == b":path" else value) for key, value in REQUEST]
    stream_id = caller.request(frame(b"x"), headers=headers, end=False)
    await until(lambda: caller.data(stream_id) == frame(b"x"), "the echo")
    pair.server.abort_connections()
    assert (await caller.ended(stream_id))[b"grpc-status"] == b"14"


async def test_a_relay_without_a_driver_is_unavailable(pair: Pair, front: Channel) -> None:
    await pair.channel.close()
    answer = await front.unary(STREAM, b"", timeout=LIMIT)
    assert answer.status is not None
    assert answer.status.code == call.UNAVAILABLE


async def test_a_message_cut_short_by_the_caller_ends_the_relay(
    pair: Pair, caller: RawPeer
) -> None:
    headers = [(key, STREAM.encode() if key == b":path" else value) for key, value in REQUEST]
    stream_id = caller.request(frame(b"x", size=9), headers=headers)
    assert (await caller.ended(stream_id))[b"grpc-status"] == b"13"
    await until(lambda: len(pair.server.tasks) == 0, "the end of the driver's call")
