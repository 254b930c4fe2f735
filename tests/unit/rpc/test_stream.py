"""A stream's inbox and its endings."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.model import Transport
from agent.errors import TransportError
from agent.rpc.stream import Inbox
from tests.support.rpc import LIMIT, Driver, Pair, RawHeaders, RawPeer, frame
from tests.support.waiting import until


@given(st.lists(st.binary(max_size=10)), st.lists(st.integers(0, 12)))
def test_the_inbox_gives_every_byte_once_in_order(chunks: list[bytes], sizes: list[int]) -> None:
    acked: list[int] = []
    inbox = Inbox(acked.append)
    for chunk in chunks:
        inbox.add(chunk, len(chunk) + 1)
    whole = b"".join(chunks)
    out = b""
    for size in sizes:
        data = inbox.take(size)
        assert (data is None) == (len(whole) - len(out) < size)
        out += data or b""
    inbox.eof()
    out += inbox.take(len(whole) + 1) or b""
    assert out == whole
    assert sum(acked) + inbox.unacked_size() == len(whole) + len(chunks)
    assert inbox.take(1) == b""


def test_credit_is_given_back_only_for_what_is_read() -> None:
    acked: list[int] = []
    inbox = Inbox(acked.append)
    inbox.add(b"abc", 3)
    inbox.add(b"def", 3)
    assert inbox.take(2) == b"ab"
    assert acked == [3]
    assert inbox.unacked_size() == 3


async def test_an_answer_before_the_reset_counts(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.answer(stream_id, frame(b"whole"))
        # By hand: h2 sends no RST_STREAM(NO_ERROR) for a stream that has ended, servers do.
        peer.writer.write(b"\0\0\4\3\0" + stream_id.to_bytes(4, "big") + bytes(4))

    driver.script = script
    assert (await driver.call()).body == b"whole"
    assert (await driver.call()).body == b"whole"


@pytest.mark.parametrize(("code", "sent"), [(8, True), (2, True), (0xFFFF, True), (7, False)])
async def test_a_reset_is_an_error_and_only_refused_was_not_seen(
    driver: Driver, code: int, sent: bool
) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.h2.reset_stream(stream_id, code)
        peer.flush()

    driver.script = script
    await driver.fails(Transport.RESET, sent=sent)
    assert driver.channel.connected


async def test_an_answer_without_trailers_is_a_protocol_error(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.h2.send_headers(
            stream_id, [(b":status", b"200"), (b"content-type", b"application/grpc")]
        )
        peer.h2.send_data(stream_id, frame(b"x"), end_stream=True)
        peer.flush()

    driver.script = script
    await driver.fails(Transport.PROTOCOL)


async def test_calls_above_the_peers_limit_wait_their_turn(driver: Driver) -> None:
    waiting: list[int] = []

    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        waiting.append(stream_id)

    driver.script = script
    await until(lambda: bool(driver.server.peers), "the connection")
    peer = driver.server.peers[0]
    peer.h2.update_settings({3: 2})  # SETTINGS_MAX_CONCURRENT_STREAMS
    peer.flush()
    await until(lambda: len(peer.events) >= 3, "the acknowledged settings")
    calls = [asyncio.get_running_loop().create_task(driver.call()) for _ in range(5)]
    for count in range(1, 6):
        expected = min(5, count + 1)
        await until(lambda: len(waiting) >= expected, "the next call")  # noqa: B023
        peer.answer(waiting[count - 1], frame(b"%d" % count))
    assert sorted([(await one).body or b"" for one in calls]) == [b"%d" % n for n in range(1, 6)]


async def test_those_who_wait_for_a_stream_end_with_the_connection(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        return

    driver.script = script
    await until(lambda: bool(driver.server.peers), "the connection")
    peer = driver.server.peers[0]
    peer.h2.update_settings({3: 1})
    peer.flush()
    await until(lambda: len(peer.events) >= 3, "the acknowledged settings")
    calls = [asyncio.get_running_loop().create_task(driver.call()) for _ in range(2)]
    await until(lambda: len(driver.headers) == 1, "the first call")
    await peer.close()
    ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), LIMIT)
    assert [(type(end), getattr(end, "sent", None)) for end in ends] == [
        (TransportError, True),
        (TransportError, False),
    ]


async def test_a_peer_that_does_not_read_holds_up_only_its_own_call(pair: Pair) -> None:
    release = asyncio.Event()

    async def stuck(stream: object) -> None:
        await release.wait()

    pair.stream = stuck
    big = asyncio.get_running_loop().create_task(
        pair.channel.unary("/other/Method", bytes(6 << 20), timeout=LIMIT)
    )
    # Stream and connection windows are 4 MiB: the rest of the big one waits, and so would others
    # that need window; a small answer does not.
    await asyncio.sleep(0.05)
    assert not big.done()
    release.set()
    with pytest.raises(TransportError):
        await pair.channel.unary("/other/Method", b"", timeout=0.0)
    big.cancel()
    with pytest.raises(asyncio.CancelledError):
        await big
    assert (await pair.call(b"after")).body == b"after"
