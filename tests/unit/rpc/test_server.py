"""The listening side: connections, counters, endings."""

from __future__ import annotations

import asyncio
import os
import stat

import pytest

from agent.core.model import Transport
from agent.errors import TransportError, UserError
from agent.rpc.call import Answer, Request
from agent.rpc.channel import Channel
from agent.rpc.server import Server
from tests.support.rpc import LIMIT, METHOD, Pair, RawPeer, frame, take_at_once
from tests.support.waiting import until


async def test_the_socket_is_for_the_owner_alone(pair: Pair) -> None:
    assert stat.S_IMODE(os.stat(pair.path).st_mode) == 0o600


async def test_connections_are_counted_and_told(pair: Pair, raw: RawPeer) -> None:
    await raw.ended(raw.request(frame(b"x")))
    assert (pair.server.connections, pair.connects) == (2, 2)
    await raw.close()
    await until(lambda: pair.server.connections == 1, "one connection")


async def test_only_unary_calls_are_in_flight(pair: Pair, raw: RawPeer) -> None:
    release = asyncio.Event()

    async def handler(_: Request) -> Answer:
        await release.wait()
        return Answer(body=b"")

    async def stream(_: object) -> None:
        await asyncio.sleep(LIMIT)

    pair.unary = handler
    pair.stream = stream
    loop = asyncio.get_running_loop()
    held = loop.create_task(pair.channel.unary("/a/Stream", b"", timeout=LIMIT))
    calls = [loop.create_task(pair.call()) for _ in range(3)]
    await until(lambda: pair.server.in_flight == 3, "three calls")
    await until(lambda: len(pair.server.tasks) == 4, "the stream")
    release.set()
    await asyncio.gather(*calls)
    await until(lambda: pair.server.in_flight == 0, "no call")
    held.cancel()
    await asyncio.wait([held])


async def test_abort_closes_at_once_without_goaway(pair: Pair, raw: RawPeer) -> None:
    await raw.ended(raw.request(frame(b"x")))
    pair.server.abort_connections()
    await until(lambda: raw.eof, "the end")
    assert not raw.goaway
    await until(lambda: pair.server.connections == 0, "no connection")
    await until(lambda: not pair.channel.connected, "the loss")
    # Still listening: a retirement that is given up.
    await pair.channel.connect()
    assert (await pair.call(b"again")).body == b"again"


async def test_abort_cancels_the_calls_of_the_connection(pair: Pair) -> None:
    cancelled = asyncio.Event()

    async def handler(_: Request) -> Answer:
        try:
            await asyncio.sleep(LIMIT)
        finally:
            cancelled.set()
        return Answer()

    pair.unary = handler
    pending = asyncio.get_running_loop().create_task(pair.call())
    await until(lambda: pair.server.in_flight == 1, "the call")
    pair.server.abort_connections()
    await asyncio.wait_for(cancelled.wait(), LIMIT)
    with pytest.raises(TransportError) as caught:
        await pending
    assert (caught.value.kind, caught.value.sent) == (Transport.RESET, True)


async def test_closing_twice_and_before_the_start_is_fine(pair: Pair) -> None:
    await pair.server.close()
    await pair.server.close()
    server = Server(unary=lambda _: None, stream=pair.echo_stream)
    server.stop_listening()
    server.unlink()
    await server.close()


async def test_a_path_that_is_too_long_is_a_users_error(pair: Pair) -> None:
    server = Server(unary=lambda _: None, stream=pair.echo_stream)
    with pytest.raises(UserError, match="107"):
        await server.start("/tmp/" + "x" * 110)


async def test_a_second_server_takes_the_path_over(pair: Pair) -> None:
    server = Server(unary=lambda _: pair.echo, stream=pair.echo_stream)
    await server.start(pair.path)
    pair.server.stop_listening()
    pair.server.unlink()
    channel = Channel(pair.path)
    await channel.connect()
    assert (await channel.unary(METHOD, b"new", timeout=LIMIT)).body == b"new"
    await channel.close()
    await server.close()
    with pytest.raises(FileNotFoundError):
        os.stat(pair.path)


async def test_an_answer_is_on_its_way_until_the_caller_has_room_for_it(
    pair: Pair, raw: RawPeer
) -> None:
    body = bytes(4 << 20)

    async def handler(_: Request) -> Answer:
        return Answer(body)

    pair.unary = handler
    take_at_once(raw, 1 << 24)
    assert pair.server.unanswered == 0
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    stream = raw.request(frame(b"x"))
    await until(lambda: pair.server.unanswered == 1, "the call")
    await until(lambda: pair.server.in_flight == 0, "the end of its handler")
    assert pair.server.unanswered == 1
    raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
    await until(lambda: pair.server.unanswered == 0, "all to be sent")
    # What the system has is the caller's, even when the connection is aborted before it was read.
    pair.server.abort_connections()
    assert (await raw.ended(stream))[b"grpc-status"] == b"0"
    assert raw.data(stream) == frame(body)
