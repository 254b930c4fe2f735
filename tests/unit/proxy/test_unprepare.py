"""Unprepare through the proxy: always forwarded once, ordered behind its claim's prepare."""

from __future__ import annotations

import asyncio

import msgspec

from agent.core.model import Transport
from agent.errors import TransportError
from agent.pb import dra_v1_pb2 as pb
from agent.rpc.call import Answer
from agent.settings.model import AgentConfig, Drivers, Duration
from tests.support.proxying import (
    FAST,
    UNPREPARE,
    A,
    B,
    Bench,
    enforcing,
    prepared,
    refused,
)
from tests.support.waiting import until


def unprepared(error: str = "") -> Answer:
    message = pb.NodeUnprepareResourcesResponse()
    message.claims[A.uid].error = error
    return Answer(message.SerializeToString())


async def test_it_is_forwarded_byte_for_byte_and_ends_what_is_remembered() -> None:
    bench = Bench(refused(A, "permanent bad"), unprepared(), prepared(A), settings=enforcing())
    await bench.call(A)
    assert len(bench.ctx.held) == 1
    assert await bench.call(A, method=UNPREPARE) == unprepared()
    assert len(bench.ctx.held) == 0
    await bench.call(A)
    assert bench.scripted.asked == [(A.name,), (f"unprepare {A.name}",), (A.name,)]


async def test_a_failing_one_is_not_repeated_by_us() -> None:
    bench = Bench(unprepared("device busy"))
    assert await bench.call(A, method=UNPREPARE) == unprepared("device busy")
    lost = Bench(TransportError(Transport.RESET, "lost", sent=True))
    answer = await lost.call(A, method=UNPREPARE)
    assert answer.status is not None
    assert answer.status.code == 14


async def test_it_ends_the_retries_of_its_claim() -> None:
    slow = msgspec.structs.replace(FAST.retry, initial_delay=Duration(20), max_delay=Duration(20))
    settings = AgentConfig(retry=slow)
    bench = Bench(refused(A, "transient busy"), unprepared(), settings=settings)
    prepare = bench.tasks.start("prepare", bench.call(A))
    await until(lambda: bench.facts)
    await bench.call(A, method=UNPREPARE)
    await prepare
    assert bench.scripted.asked == [(A.name,), (f"unprepare {A.name}",)]


async def test_it_waits_for_the_attempt_in_flight_and_a_new_prepare_waits_for_it() -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def slow_prepare() -> Answer:
        await first.wait()
        return prepared(A)

    async def slow_unprepare() -> Answer:
        await second.wait()
        return unprepared()

    bench = Bench(slow_prepare, slow_unprepare, prepared(A))
    one = bench.tasks.start("one", bench.call(A))
    await until(lambda: bench.scripted.asked)
    two = bench.tasks.start("two", bench.call(A, method=UNPREPARE))
    await until(lambda: bench.ctx.undoing)
    three = bench.tasks.start("three", bench.call(A))
    await asyncio.sleep(0.02)
    assert bench.scripted.asked == [(A.name,)]
    first.set()
    await one
    await until(lambda: len(bench.scripted.asked) == 2)
    await asyncio.sleep(0.02)
    assert len(bench.scripted.asked) == 2
    second.set()
    await two
    await three
    assert bench.scripted.asked == [(A.name,), (f"unprepare {A.name}",), (A.name,)]
    assert not bench.ctx.undoing


async def test_it_goes_out_all_the_same_when_its_own_deadline_comes_near() -> None:
    never = asyncio.Event()

    async def stuck() -> Answer:
        await never.wait()
        return prepared(A)

    bench = Bench(stuck, unprepared())
    prepare = bench.tasks.start("prepare", bench.call(A))
    await until(lambda: bench.scripted.asked)
    answer = await bench.call(A, method=UNPREPARE, deadline=10.02)
    assert answer == unprepared()
    prepare.cancel()


async def test_another_claims_prepare_does_not_hold_it_up() -> None:
    never = asyncio.Event()

    async def stuck() -> Answer:
        await never.wait()
        return prepared(B)

    bench = Bench(stuck, unprepared())
    prepare = bench.tasks.start("prepare", bench.call(B))
    await until(lambda: bench.scripted.asked)
    assert await bench.call(A, method=UNPREPARE) == unprepared()
    prepare.cancel()


async def test_an_absent_driver_is_waited_for_and_then_told() -> None:
    settings = AgentConfig(retry=FAST.retry, drivers=Drivers(driver_absence_hold=Duration(0.02)))
    bench = Bench(settings=settings)
    bench.scripted.away_since = asyncio.get_running_loop().time()
    answer = await bench.call(A, method=UNPREPARE)
    assert answer.status is not None
    assert answer.status.code == 14
    assert "no instance" in answer.status.message


def patient() -> AgentConfig:
    """Waits so long between attempts that only something else can end a wait."""
    slow = msgspec.structs.replace(FAST.retry, initial_delay=Duration(20), max_delay=Duration(20))
    return AgentConfig(retry=slow)


async def test_what_one_claim_gives_back_another_gets_at_once() -> None:
    bench = Bench(refused(A, "transient taken"), unprepared(), prepared(A), settings=patient())
    waiting = bench.tasks.start("prepare", bench.call(A))
    await until(lambda: bench.facts)
    await bench.call(B, method=UNPREPARE)
    assert await asyncio.wait_for(waiting, 10) == prepared(A)
    assert bench.scripted.asked == [(A.name,), (f"unprepare {B.name}",), (A.name,)]


async def test_an_unprepare_that_failed_wakes_nobody() -> None:
    bench = Bench(refused(A, "transient taken"), unprepared("still busy"), settings=patient())
    waiting = bench.tasks.start("prepare", bench.call(A))
    await until(lambda: bench.facts)
    # The scripted answer is for claim A, whoever asks: an error is an error.
    await bench.call(B, method=UNPREPARE)
    (live,) = bench.ctx.live
    assert not live.wake.is_set()
    assert not waiting.done()
    await bench.tasks.close()


async def test_calls_in_flight_are_told_oldest_first() -> None:
    gate = asyncio.Event()

    async def slow() -> Answer:
        await gate.wait()
        return unprepared()

    bench = Bench(refused(A, "transient taken"), slow, prepared(A), settings=patient())
    waiting = bench.tasks.start("prepare", bench.call(A))
    await until(lambda: bench.facts)
    undoing = bench.tasks.start("unprepare", bench.call(B, method=UNPREPARE))
    await until(lambda: bench.ctx.undoing)
    active = bench.proxy.active(bench.scripted.name)
    assert [(each.claim, each.operation) for each in active] == [(A, "prepare"), (B, "unprepare")]
    assert active[0].seconds >= active[1].seconds >= 0.0
    assert bench.proxy.active("other.example.com") == []
    gate.set()
    await asyncio.gather(waiting, undoing)
    assert bench.proxy.active(bench.scripted.name) == []


async def test_its_end_is_told() -> None:
    bench = Bench(unprepared(), unprepared("device busy"))
    for _ in range(2):
        await bench.call(A, method=UNPREPARE)
    told = [(f.operation, f.code, f.outcomes[0].state.value) for f in bench.facts]
    assert told == [("unprepare", 0, "prepared"), ("unprepare", 0, "failed")]
