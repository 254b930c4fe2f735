"""The handlers of an endpoint and what others ask of the calls."""

from __future__ import annotations

import asyncio
import tempfile

import pytest

from agent import names
from agent.core.model import Status
from agent.rpc.call import Answer, Request
from agent.rpc.channel import Channel
from agent.rpc.server import Server
from tests.support.node_standins import Driver
from tests.support.proxying import DRIVER, PREPARE, A, B, Bench, enforcing, prepared, refused


async def test_the_agent_answers_its_own_ping_and_nothing_it_does_not_know() -> None:
    bench = Bench()
    table = bench.proxy.unary(bench.scripted.link)
    ping = table(names.PING_METHOD)
    assert ping is not None
    assert await ping(Request(names.PING_METHOD, (), None, b"")) == Answer(b"")
    assert table("/some.Other/Method") is None
    assert bench.scripted.asked == []


async def test_a_request_nobody_can_read_is_the_drivers_to_refuse() -> None:
    refusal = Answer(None, Status(13, "cannot unmarshal"))

    class Deaf:
        async def unary(self, *_: object, **__: object) -> Answer:
            return refusal

    bench = Bench()
    bench.scripted.pick = lambda service: Deaf()  # type: ignore[method-assign,assignment,return-value]
    handler = bench.proxy.unary(bench.scripted.link)(PREPARE)
    assert handler is not None
    at = asyncio.get_running_loop().time() + 5
    assert await handler(Request(PREPARE, (), at, b"\xff")) == refusal


async def test_other_methods_are_relayed_to_the_instance_kubelet_would_pick() -> None:
    method, asked = "/v1.DRAResourceHealth/NodeWatchResources", list[str]()
    with tempfile.TemporaryDirectory(prefix="dra") as root:
        driver = Driver(root, DRIVER)
        await driver.start()
        upstream, channel = Channel(driver.endpoint_path), Channel(f"{root}/agent.sock")
        await upstream.connect()
        connected: list[Channel] = [upstream]

        def pick(service: str) -> Channel | None:
            asked.append(service)
            return connected[0] if connected else None

        bench = Bench()
        bench.scripted.pick = pick  # type: ignore[method-assign,assignment]
        link = bench.scripted.link
        server = Server(unary=bench.proxy.unary(link), stream=bench.proxy.stream(link))
        await server.start(f"{root}/agent.sock")
        await channel.connect()
        assert (await channel.unary(method, b"x", timeout=5)).body == b"driver:x"
        assert asked == ["v1.DRAResourceHealth"]
        connected.clear()
        status = (await channel.unary(method, b"x", timeout=5)).status
        said = f"dra-agent: {DRIVER}: no instance of the driver is connected"
        assert status == Status(14, said)
        await channel.close()
        await server.close()
        await upstream.close()
        await driver.stop()


async def test_calls_are_counted_with_the_code_kubelet_got() -> None:
    bench = Bench(prepared(A), Answer(None, Status(3, "permanent no")))
    await bench.call(A)
    await bench.call(A)
    text = bench.ctx.metrics.render().decode()
    for code in ("OK", "InvalidArgument"):
        line = f'method_name="{PREPARE}"'
        found = [r for r in text.splitlines() if f'grpc_status_code="{code}"' in r and line in r]
        assert any(r.startswith("dra_agent_grpc_operations_duration_seconds_count") for r in found)


async def test_a_defect_of_ours_is_counted_and_raised() -> None:
    bench = Bench(ValueError("defect"))
    with pytest.raises(ValueError, match="defect"):
        await bench.call(A)
    assert not bench.ctx.live
    assert 'grpc_status_code="Internal"' in bench.ctx.metrics.render().decode()


async def test_the_end_of_a_pod_ends_its_held_verdicts_alone() -> None:
    bench = Bench(refused(A, "permanent bad"), refused(B, "permanent bad"), settings=enforcing())
    await bench.call(A)
    await bench.call(B)
    bench.proxy.pod_gone("ns", [A.name])
    assert not bench.proxy.holding(DRIVER, A.uid)
    assert bench.proxy.holding(DRIVER, B.uid)
    bench.proxy.pin(DRIVER, B.uid)
    assert bench.ctx.held.describe(0.0) == [
        {
            "driver": DRIVER,
            "claim": "ns/claim-b",
            "rule": "rule-permanent",
            "seconds": None,
        }
    ]


async def test_a_trigger_ends_the_count_of_held_verdicts_too() -> None:
    bench = Bench(*[refused(A, "permanent bad")] * 2, settings=enforcing())
    series = f'dra_agent_held_verdicts{{driver_name="{DRIVER}"}} '
    bench.ctx.held.periods(0.0, 0.0)
    for over in (False, True):
        await bench.call(A)
        assert f"{series}1.0" in bench.ctx.metrics.render().decode()
        if over:
            assert not bench.proxy.holding(DRIVER, A.uid)  # the clock has ended it
        bench.proxy.trigger(DRIVER)
        assert f"{series}0.0" in bench.ctx.metrics.render().decode()


async def test_what_passed_and_who_is_served() -> None:
    bench = Bench(prepared(A))
    assert bench.proxy.served_drivers() == {DRIVER}
    assert not bench.proxy.passed("ns", A.name)
    await bench.call(A)
    assert bench.proxy.passed("ns", A.name)
    bench.scripted.registered = False
    assert bench.proxy.served_drivers() == frozenset()
