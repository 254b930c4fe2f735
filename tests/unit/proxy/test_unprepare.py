"""Unprepare through the proxy: always forwarded once, ordered behind its claim's prepare."""

from __future__ import annotations

import asyncio
import functools

import msgspec
import pytest

from agent.core.model import ClaimRef, Transport
from agent.errors import TransportError
from agent.pb import dra_v1_pb2 as pb
from agent.rpc.call import Answer
from agent.settings.model import AgentConfig, Drivers, Duration
from tests.support.proxying import (
    DRIVER,
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


def unprepared(error: str = "", *more: ClaimRef, claim: ClaimRef = A) -> Answer:
    """A driver's answer: `error` for one claim, none for the others."""
    message = pb.NodeUnprepareResourcesResponse()
    message.claims[claim.uid].error = error
    for other in more:
        message.claims[other.uid].error = ""
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
    said = bench.ctx.metrics.render().decode()
    assert f'dra_agent_unprepares_early_total{{driver_name="{DRIVER}"}} 1.0' in said


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
    bench = Bench(
        refused(A, "transient taken"), unprepared(claim=B), prepared(A), settings=patient()
    )
    waiting = bench.tasks.start("prepare", bench.call(A))
    await until(lambda: bench.facts)
    await bench.call(B, method=UNPREPARE)
    assert await asyncio.wait_for(waiting, 10) == prepared(A)
    assert bench.scripted.asked == [(A.name,), (f"unprepare {B.name}",), (A.name,)]


async def test_an_unprepare_that_failed_wakes_nobody() -> None:
    failing = unprepared("still busy", claim=B)
    bench = Bench(refused(A, "transient taken"), failing, settings=patient())
    waiting = bench.tasks.start("prepare", bench.call(A))
    await until(lambda: bench.facts)
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


C = ClaimRef("ns", "00000000-0000-4000-8000-00000000000c", "claim-c")


async def test_one_failing_claim_takes_nothing_from_what_the_others_gave_back() -> None:
    bench = Bench(
        refused(A, "transient taken"),
        unprepared("still busy", C, claim=B),
        prepared(A),
        settings=patient(),
    )
    waiting = bench.tasks.start("prepare", bench.call(A))
    await until(lambda: bench.facts)
    await bench.call(B, C, method=UNPREPARE)
    assert await asyncio.wait_for(waiting, 10) == prepared(A)
    (fact,) = (fact for fact in bench.facts if fact.operation == "unprepare")
    told = [(o.claim, o.state.value, o.last_error) for o in fact.outcomes]
    assert told == [(B, "failed", "still busy"), (C, "prepared", "")]


async def test_a_claim_without_a_word_failed_as_it_does_for_kubelet() -> None:
    bench = Bench(unprepared("", claim=B), Answer(b"\xff"))
    await bench.call(B, C, method=UNPREPARE)
    await bench.call(B, C, method=UNPREPARE)
    told = [[o.state.value for o in fact.outcomes] for fact in bench.facts]
    assert told == [["prepared", "failed"], ["failed", "failed"]]


@pytest.mark.parametrize("found", [False, True])
async def test_strangers_do_not_use_up_the_hurry_for_the_blocker(found: bool) -> None:
    """`found`: the reporter found the blocker; else the text names it."""
    text = "transient taken" if found else f"transient taken by claim ns/{B.name}"
    strangers = [unprepared(claim=C), refused(A, text)] * 4
    bench = Bench(
        *(refused(A, text), *strangers, unprepared(claim=B), prepared(A)), settings=patient()
    )
    waiting = bench.tasks.start("prepare", bench.call(A))
    await until(lambda: bench.facts)
    if found:
        bench.proxy.blocked(DRIVER, A.uid, B.uid)
        bench.proxy.blocked("other.example.com", A.uid, C.uid)
    for number in range(4):
        await bench.call(C, method=UNPREPARE)
        await until(functools.partial(_tried, bench, 2 + number))
    await bench.call(B, method=UNPREPARE)
    assert await asyncio.wait_for(waiting, 10) == prepared(A)


def _tried(bench: Bench, times: int) -> bool:
    """Whether so many attempts of the prepare were told."""
    return sum(fact.operation == "prepare" for fact in bench.facts) == times
