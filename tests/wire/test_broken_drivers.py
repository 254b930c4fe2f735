"""Drivers that answer with what is no answer: kubelet gets an error, never a wrong success."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from agent import names
from agent.core.model import ClaimRef
from agent.demo import messages
from tests.support.rpc import RESPONSE, RawPeer, frame
from tests.wire.harness import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    OK,
    UNAVAILABLE,
    UNPREPARE,
    Answer,
    Node,
    claim,
    node,
    request,
)
from tests.wire.rawdriver import RawDriver

pytestmark = pytest.mark.timeout(60)

ENTRY = messages.ClaimAnswer()


def response(*uids: str) -> bytes:
    """A prepare response with these keys, in this order, doubled ones too."""
    return b"".join(messages.answers(names.PREPARE, {uid: ENTRY}) for uid in uids)


class Broken:
    """One agent, kubelet and raw driver."""

    def __init__(self, node: Node, driver: RawDriver) -> None:
        self.node, self.driver = node, driver

    async def prepare(self, *claims: ClaimRef, timeout: float = 5.0) -> Answer:
        return await asyncio.to_thread(self.node.kubelet.prepare, *claims, timeout=timeout)


@pytest.fixture
async def broken() -> AsyncIterator[Broken]:
    with node(retry={"ambiguousAttempts": 1, "margin": "3s"}) as it:
        driver = RawDriver(it)
        await driver.start()
        await asyncio.to_thread(it.start_agent)
        await asyncio.to_thread(it.connect)
        yield Broken(it, driver)
        await driver.close()


def raw(data: bytes) -> Callable[[RawPeer, int], Awaitable[None]]:
    """Write these bytes to the connection instead of an answer."""

    async def answer(peer: RawPeer, stream: int) -> None:
        peer.writer.write(data)

    return answer


def body(data: bytes) -> Callable[[RawPeer, int], Awaitable[None]]:
    """Answer with this DATA and a good status."""

    async def answer(peer: RawPeer, stream: int) -> None:
        peer.answer(stream, data)

    return answer


async def half_then_gone(peer: RawPeer, stream: int) -> None:
    peer.h2.send_headers(stream, RESPONSE)
    peer.h2.send_data(stream, frame(b"x" * 100)[:50])
    peer.flush()
    await peer.writer.drain()
    peer.writer.transport.abort()


async def half_of_a_frame(peer: RawPeer, stream: int) -> None:
    peer.h2.send_headers(stream, RESPONSE)
    peer.h2.send_data(stream, b"y" * 100)
    data = peer.h2.data_to_send()
    assert data is not None
    peer.writer.write(data[: len(data) - 60])
    await peer.writer.drain()
    peer.writer.transport.abort()


async def no_trailers(peer: RawPeer, stream: int) -> None:
    peer.h2.send_headers(stream, RESPONSE)
    peer.h2.send_data(stream, frame(b""), end_stream=True)
    peer.flush()


async def http_404(peer: RawPeer, stream: int) -> None:
    peer.h2.send_headers(stream, [(b":status", b"404")], end_stream=True)
    peer.flush()


async def bad_status(peer: RawPeer, stream: int) -> None:
    headers = [*RESPONSE, (b"grpc-status", b"many")]
    peer.h2.send_headers(stream, headers, end_stream=True)
    peer.flush()


async def silence(peer: RawPeer, stream: int) -> None:
    """Nothing at all."""


@pytest.mark.parametrize(
    ("answer", "codes"),
    [
        pytest.param(raw(b"HTTP/1.1 200 OK\r\n\r\n"), {UNAVAILABLE}, id="http-1"),
        pytest.param(raw(bytes(range(256)) * 40), {UNAVAILABLE}, id="garbage"),
        pytest.param(half_then_gone, {UNAVAILABLE}, id="half-a-message"),
        pytest.param(half_of_a_frame, {UNAVAILABLE}, id="half-a-frame"),
        pytest.param(silence, {DEADLINE_EXCEEDED}, id="nothing"),
        pytest.param(no_trailers, {INTERNAL}, id="no-trailers"),
        pytest.param(http_404, {INTERNAL}, id="http-404"),
        pytest.param(bad_status, {INTERNAL}, id="bad-status"),
        pytest.param(body(frame(b"")[:3]), {INTERNAL}, id="cut-prefix"),
        pytest.param(body(frame(b"abc", size=3 << 30)), {8}, id="a-length-of-3-GiB"),
        pytest.param(body(frame(b"abc", flag=1)), {12}, id="compressed"),
        pytest.param(body(frame(b"") + frame(b"")), {INTERNAL}, id="two-messages"),
        pytest.param(body(frame(b"\xff\xff\xff")), {INTERNAL}, id="not-protobuf"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_and_the_agent_lives_on(
    broken: Broken, answer: Callable[[RawPeer, int], Awaitable[None]], codes: set[int]
) -> None:
    broken.driver.answer = answer
    got = await broken.prepare(claim("one"))
    # A transport error is retried until kubelet's time is nearly over; then its own code counts.
    assert got.code in codes, got
    broken.driver.answer = broken.driver.prepared
    again = await broken.prepare(claim("two"), timeout=20)
    assert again.code == OK, again
    assert not any(e["error"] for e in again.claims.values())
    errors = [line for line in broken.node.log() if line["severity"] in ("ERROR", "CRITICAL")]
    assert not errors


async def test_a_map_with_missing_extra_or_doubled_claims(broken: Broken) -> None:
    one, two = claim("one"), claim("two")
    for uids, good, bad in (
        ((one.uid,), {one.uid}, {two.uid}),
        ((one.uid, two.uid, "uid-nobody-asked-for"), {one.uid, two.uid}, set()),
        ((one.uid, two.uid, two.uid, one.uid), {one.uid, two.uid}, set()),
        ((), set(), {one.uid, two.uid}),
    ):

        async def answer(peer: RawPeer, stream: int, uids: tuple[str, ...] = tuple(uids)) -> None:
            peer.answer(stream, frame(response(*uids)))

        broken.driver.answer = answer
        got = await broken.prepare(one, two)
        assert got.code == OK
        claims = got.claims
        assert claims.keys() == {one.uid, two.uid}
        assert {uid for uid, entry in claims.items() if not entry["error"]} == good
        for uid in bad:
            assert "no entry for this claim" in claims[uid]["error"]


@pytest.mark.parametrize("uids", [(), ("uid-nobody-asked-for",)])
async def test_an_unprepares_answer_is_the_drivers_own_whatever_it_holds(
    broken: Broken, uids: tuple[str, ...]
) -> None:
    body = response(*uids)

    async def answer(peer: RawPeer, stream: int) -> None:
        peer.answer(stream, frame(body))

    broken.driver.answer = answer
    got = await asyncio.to_thread(broken.node.kubelet.call, UNPREPARE, request(claim("one")))
    assert (got.code, got.messages) == (OK, [body])
