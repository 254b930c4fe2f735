"""Calls that come in: every one ends with a status."""

from __future__ import annotations

import asyncio

import pytest

from agent.core.model import Status, Transport
from agent.errors import TransportError
from agent.rpc import call
from agent.rpc.call import Answer, Request, ServerStream
from tests.support.rpc import LIMIT, REQUEST, Pair, RawPeer, frame
from tests.support.waiting import until


async def code_of(pair: Pair, timeout: float = LIMIT) -> tuple[int, str]:
    answer = await pair.call(timeout=timeout)
    assert answer.status is not None
    return answer.status.code, answer.status.message


async def test_all_parts_of_an_answer_arrive(pair: Pair) -> None:
    async def handler(request: Request) -> Answer:
        return Answer(b"body", None, (("i", "1"), ("i-bin", b"\0")), (("t", "2"), ("t-bin", b"")))

    pair.unary = handler
    answer = await pair.call(b"asked", metadata=(("k", "v"), ("k-bin", b"\xff")))
    assert answer == Answer(
        b"body", None, (("i", "1"), ("i-bin", b"\0")), (("t", "2"), ("t-bin", b""))
    )
    request = pair.requests[0]
    assert request.body == b"asked"
    assert request.metadata == (("k", "v"), ("k-bin", b"\xff"))
    assert request.deadline is not None
    left = request.deadline - asyncio.get_running_loop().time()
    assert LIMIT / 2 < left <= LIMIT


async def test_an_error_may_have_initial_metadata_and_trailers(pair: Pair) -> None:
    status = Status(9, "no", b"d", (("t", "u"),))

    async def handler(_: Request) -> Answer:
        return Answer(status=status, initial=(("i", "j"),))

    pair.unary = handler
    answer = await pair.call()
    assert (answer.status, answer.initial, answer.trailers) == (
        status,
        (("i", "j"),),
        (("t", "u"),),
    )


async def test_a_handler_that_raises_is_internal(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(_: Request) -> Answer:
        raise RuntimeError("secret")

    pair.unary = handler
    code, message = await code_of(pair)
    assert code == call.INTERNAL
    assert "secret" not in message
    assert "secret" in caplog.text
    assert pair.changes == [True]


async def test_a_timeout_of_the_handlers_own_is_internal(pair: Pair) -> None:
    async def handler(_: Request) -> Answer:
        raise TimeoutError

    pair.unary = handler
    assert (await code_of(pair))[0] == call.INTERNAL


async def test_a_transport_error_of_a_handler_is_unavailable(pair: Pair) -> None:
    async def handler(_: Request) -> Answer:
        raise TransportError(Transport.GONE, "no driver", sent=False)

    pair.unary = handler
    assert await code_of(pair) == (call.UNAVAILABLE, "no driver")


async def test_a_deadline_that_passes_is_said_and_cancels_the_handler(
    pair: Pair, raw: RawPeer
) -> None:
    cancelled = asyncio.Event()

    async def handler(_: Request) -> Answer:
        try:
            await asyncio.sleep(LIMIT)
        finally:
            cancelled.set()
        return Answer()

    pair.unary = handler
    stream_id = raw.request(frame(b""), headers=[*REQUEST, (b"grpc-timeout", b"50m")])
    assert (await raw.ended(stream_id))[b"grpc-status"] == b"4"
    assert cancelled.is_set()
    assert pair.server.in_flight == 0


async def test_a_caller_that_gives_up_cancels_the_handler(pair: Pair, raw: RawPeer) -> None:
    cancelled = asyncio.Event()

    async def handler(_: Request) -> Answer:
        try:
            await asyncio.sleep(LIMIT)
        finally:
            cancelled.set()
        return Answer()

    pair.unary = handler
    stream_id = raw.request(frame(b""))
    await until(lambda: pair.server.in_flight == 1, "the call")
    raw.h2.reset_stream(stream_id, 8)
    raw.flush()
    await asyncio.wait_for(cancelled.wait(), LIMIT)
    await until(lambda: len(pair.server.tasks) == 0, "the end of the call")
    assert (await raw.ended(raw.request(frame(b""), headers=[*REQUEST, (b"grpc-timeout", b"1m")])))[
        b"grpc-status"
    ] == b"4"


async def test_a_request_reset_in_the_same_breath_leaves_nothing(pair: Pair, raw: RawPeer) -> None:
    stream_id = raw.h2.get_next_available_stream_id()
    raw.h2.send_headers(stream_id, REQUEST)
    raw.h2.send_data(stream_id, frame(b"x"))
    raw.h2.reset_stream(stream_id, 8)
    raw.flush()
    assert (await raw.ended(raw.request(frame(b"x"))))[b"grpc-status"] == b"0"
    await until(lambda: len(pair.server.tasks) == 0, "the end of calls")
    for peer in pair.server.peers:
        assert peer.protocol is not None
        assert not peer.protocol.processor.streams


@pytest.mark.parametrize(
    ("name", "value", "http", "code"),
    [
        (b":method", b"GET", b"405", b"13"),
        (b"content-type", b"text/html", b"415", b"13"),
        (b"grpc-timeout", b"soon", b"200", b"13"),
    ],
)
async def test_what_is_not_grpc_is_refused(
    pair: Pair, raw: RawPeer, name: bytes, value: bytes, http: bytes, code: bytes
) -> None:
    headers = [pair_ for pair_ in REQUEST if pair_[0] != name] + [(name, value)]
    answer = await raw.ended(raw.request(frame(b"x"), headers=headers))
    assert (answer[b":status"], answer[b"grpc-status"]) == (http, code)
    assert not pair.requests


async def test_a_stream_handler_without_an_end_is_internal(pair: Pair) -> None:
    async def handler(stream: ServerStream) -> None:
        await stream.recv()

    pair.stream = handler
    answer = await pair.channel.unary("/other/Method", b"", timeout=LIMIT)
    assert answer.status is not None
    assert answer.status.code == call.INTERNAL


async def test_a_stream_may_end_before_its_caller(pair: Pair, raw: RawPeer) -> None:
    async def handler(stream: ServerStream) -> None:
        await stream.send_initial((("i", "j"),))
        await stream.send(b"one")
        await stream.end(Status(8, "enough"))

    pair.stream = handler
    path = [(key, b"/a/B" if key == b":path" else value) for key, value in REQUEST]
    stream_id = raw.request(frame(b"x"), headers=path, end=False)
    answer = await raw.ended(stream_id)
    assert (answer[b"i"], answer[b"grpc-status"], answer[b"grpc-message"]) == (
        b"j",
        b"8",
        b"enough",
    )
    assert raw.data(stream_id) == frame(b"one")
    await until(lambda: len(pair.server.tasks) == 0, "the end of the call")
