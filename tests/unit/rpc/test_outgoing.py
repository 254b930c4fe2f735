"""What a call sends, and which answers are none."""

from __future__ import annotations

import pytest

from agent.core.model import Status, Transport
from tests.support.rpc import LIMIT, METHOD, OK, Driver, RawHeaders, RawPeer, frame


async def test_the_headers_of_a_call(driver: Driver) -> None:
    await driver.channel.unary(METHOD, b"x", metadata=(("a", "b"), ("c-bin", b"\0")), timeout=LIMIT)
    timeout = dict(driver.headers[0])[b"grpc-timeout"]
    assert driver.headers[0] == [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", METHOD.encode()),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"grpc-python-dra-node-agent"),
        (b"grpc-timeout", timeout),
        (b"a", b"b"),
        (b"c-bin", b"AA"),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([(b":status", b"503")], id="HTTP error"),
        pytest.param([(b":status", b"200"), (b"content-type", b"text/html")], id="a web page"),
        pytest.param([(b":status", b"200")], id="no content-type"),
        pytest.param([(b":status", b"200"), (b"grpc-status", b"zero")], id="malformed status"),
        pytest.param([(b":status", b"200"), (b"grpc-status", b"0")], id="OK without a message"),
    ],
)
async def test_what_is_not_grpc_is_a_protocol_error(driver: Driver, headers: RawHeaders) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.h2.send_headers(stream_id, headers, end_stream=True)
        peer.flush()

    driver.script = script
    await driver.fails(Transport.PROTOCOL)
    assert driver.channel.connected


async def test_a_status_after_a_message_wins(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        peer.answer(stream_id, frame(b"half"), [(b"grpc-status", b"5")])

    driver.script = script
    answer = await driver.call()
    assert (answer.body, answer.status) == (None, Status(5, ""))


async def test_an_answer_before_the_request_is_whole_is_taken(driver: Driver) -> None:
    async def script(peer: RawPeer, stream_id: int, _: RawHeaders) -> None:
        # 10 MiB do not fit into the windows, so this comes while the request is being sent.
        peer.answer(stream_id, frame(b"enough"), OK)
        peer.h2.reset_stream(stream_id, 0)
        peer.flush()

    driver.script = script
    answer = await driver.channel.unary(METHOD, bytes(10 << 20), timeout=LIMIT)
    assert answer.body == b"enough"
    driver.script = None
    assert (await driver.call()).body == b"fine"
