"""Prepare calls through the proxy, with a scripted driver."""

from __future__ import annotations

import asyncio

import msgspec

from agent.core import wire
from agent.core.model import DeviceState, Status, Transport
from agent.errors import TransportError
from agent.rpc.call import Answer
from agent.settings.model import AgentConfig, Drivers, Duration
from tests.support.proxying import FAST, A, B, Bench, enforcing, prepared, refused
from tests.support.waiting import until


def errors(answer: Answer) -> dict[str, str]:
    assert answer.body is not None
    return {uid: entry.error for uid, entry in wire.entries(answer.body).items()}


async def test_a_healthy_call_passes_byte_for_byte_with_metadata_and_trailers() -> None:
    body = prepared(A, B)
    bench = Bench(body)
    answer = await bench.call(A, B)
    assert answer == body
    assert bench.scripted.asked == [(A.name, B.name)]
    assert bench.scripted.metadata == (("x-from", "kubelet"),)
    assert bench.ctx.passed == {("ns", "claim-a"), ("ns", "claim-b")}
    (fact,) = bench.facts
    assert fact.final
    assert [o.devices for o in fact.outcomes] == [("claim-a-dev",), ("claim-b-dev",)]


async def test_unknown_fields_of_an_answer_survive() -> None:
    body = prepared(A).body
    assert body is not None
    extra = body + b"\xa2\x06\x03new"
    assert (await Bench(Answer(extra)).call(A)).body == extra


async def test_a_transient_failure_is_retried_for_the_failing_claim_alone_and_merged() -> None:
    bench = Bench(refused(B, "transient busy", A), refused(B, "transient busy"), prepared(B))
    answer = await bench.call(A, B)
    assert errors(answer) == {A.uid: "", B.uid: ""}
    assert bench.scripted.asked == [(A.name, B.name), (B.name,), (B.name,)]
    assert [fact.final for fact in bench.facts] == [False, False, False, True]
    assert bench.facts[-1].outcomes[1].attempts == 3
    assert bench.facts[-1].outcomes[1].first_error == "transient busy"


async def test_a_permanent_failure_keeps_its_shape_says_who_speaks_and_sets_the_field() -> None:
    bench = Bench(refused(A, "permanent bad strategy", B))
    answer = await bench.call(A, B)
    assert answer.body is not None
    entries = wire.entries(answer.body)
    assert entries[A.uid].error == (
        "dra-agent: gpu.example.com: permanent (parameters): permanent bad strategy"
    )
    assert entries[A.uid].permanent_error
    assert entries[B.uid].error == ""
    assert len(bench.ctx.held) == 0, "observe holds nothing"


async def test_enforce_holds_the_verdict_and_answers_repeats_without_the_driver() -> None:
    bench = Bench(refused(A, "permanent bad", B), settings=enforcing())
    first = await bench.call(A, B)
    second = await bench.call(A, B)
    assert len(bench.scripted.asked) == 1
    assert errors(second)[A.uid] == errors(first)[A.uid]
    assert "not asked, because of claim-a" in errors(second)[B.uid]
    assert [o.state for o in bench.facts[-1].outcomes] == [DeviceState.FAILED, DeviceState.BLOCKED]
    assert bench.facts[-1].outcomes[0].held
    assert bench.proxy.holding(bench.scripted.name, A.uid)
    bench.proxy.trigger(bench.scripted.name)
    assert not bench.proxy.holding(bench.scripted.name, A.uid)


async def test_the_drivers_own_word_is_held_in_observe_too() -> None:
    bench = Bench(refused(A, "permanent broken", permanent=True))
    await bench.call(A)
    await bench.call(A)
    assert len(bench.scripted.asked) == 1


async def test_a_whole_call_error_stays_one_with_code_and_details() -> None:
    status = Status(3, "permanent no", b"\x08\x03", (("x", "y"),))
    answer = await Bench(Answer(None, status, (("initial", "yes"),))).call(A, B)
    assert answer.status is not None
    assert answer.status.code == 3
    assert answer.status.message.endswith("permanent no")
    assert answer.status.details == b"\x08\x03"
    assert answer.trailers == (("x", "y"),)
    assert answer.initial == (("initial", "yes"),)


async def test_a_transport_fault_becomes_an_answer_after_retries() -> None:
    lost = TransportError(Transport.RESET, "connection lost", sent=True)
    bench = Bench(lost, lost, prepared(A))
    assert errors(await bench.call(A)) == {A.uid: ""}
    short = Bench(lost)
    answer = await short.call(A, deadline=0.2)
    assert answer.status is not None
    assert answer.status.code == 14
    assert "connection lost" in answer.status.message


async def test_a_missing_entry_is_an_error_and_an_extra_one_is_dropped() -> None:
    bench = Bench(*[prepared(B)] * 4)
    answer = await bench.call(A)
    assert list(errors(answer)) == [A.uid]
    assert "no entry for this claim" in errors(answer)[A.uid]


async def test_garbage_from_the_driver_becomes_an_answer() -> None:
    bench = Bench(Answer(b"\xff\xff"), prepared(A))
    assert errors(await bench.call(A)) == {A.uid: ""}


async def test_an_absent_driver_is_waited_for_within_the_call() -> None:
    bench = Bench(prepared(A))
    loop = asyncio.get_running_loop()
    bench.scripted.away_since = loop.time()
    call = bench.tasks.start("call", bench.call(A))
    await until(lambda: bench.ctx.live)
    bench.scripted.away_since = None
    bench.scripted.back.set()
    assert errors(await call) == {A.uid: ""}


async def test_an_absent_driver_is_told_when_the_hold_is_over() -> None:
    settings = AgentConfig(retry=FAST.retry, drivers=Drivers(driver_absence_hold=Duration(0.02)))
    bench = Bench(settings=settings)
    bench.scripted.away_since = asyncio.get_running_loop().time()
    answer = await bench.call(A)
    assert answer.status is not None
    assert answer.status.code == 14
    assert bench.facts[-1].outcomes[0].state is DeviceState.FAILED
    assert bench.facts[-1].outcomes[0].attempts == 0


async def test_a_deleted_pods_call_ends_at_once() -> None:
    slow = msgspec.structs.replace(FAST.retry, initial_delay=Duration(20), max_delay=Duration(20))
    bench = Bench(refused(A, "transient busy"), settings=AgentConfig(retry=slow))
    call = bench.tasks.start("call", bench.call(A))
    await until(lambda: bench.facts)
    assert bench.proxy.in_flight([A.uid])
    bench.proxy.pod_deleting("ns", [A.name])
    assert "transient busy" in errors(await call)[A.uid]
    assert not bench.proxy.in_flight([A.uid])


async def test_two_claims_of_one_driver_never_wait_for_each_other() -> None:
    """compute-domain's prepare waits for another pod's prepare by the same driver."""
    second_came = asyncio.Event()

    async def first() -> Answer:
        await second_came.wait()
        return prepared(A)

    async def second() -> Answer:
        second_came.set()
        return prepared(B)

    bench = Bench(first, second)
    one = bench.tasks.start("one", bench.call(A))
    await until(lambda: bench.scripted.asked)
    await bench.call(B)
    assert errors(await one) == {A.uid: ""}


async def test_a_second_call_for_a_claim_in_flight_joins_it() -> None:
    gate = asyncio.Event()

    async def slow() -> Answer:
        await gate.wait()
        return prepared(A)

    bench = Bench(slow)
    calls = [bench.tasks.start(f"call {n}", bench.call(A)) for n in (1, 2)]
    await until(lambda: len(bench.ctx.live) == 2)
    gate.set()
    for call in calls:
        assert errors(await call) == {A.uid: ""}
    assert bench.scripted.asked == [(A.name,)]


async def test_stopping_gives_each_call_its_one_attempt() -> None:
    bench = Bench(refused(A, "transient busy"))
    bench.proxy.stop_retrying()
    assert "transient busy" in errors(await bench.call(A))[A.uid]
    assert len(bench.scripted.asked) == 1
