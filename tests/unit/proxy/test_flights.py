"""Single flight: joining, cancelling, landing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.aio import Tasks
from agent.core.model import ClaimRef, ClaimResult
from agent.proxy.flights import Attempt, Flights

A, B = ClaimRef("ns", "uid-a", "a"), ClaimRef("ns", "uid-b", "b")


class Driver:
    """Answers when told to; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[ClaimRef, ...]] = []
        self.answer = asyncio.Event()
        self.cancelled = 0

    async def send(self, claims: tuple[ClaimRef, ...]) -> Attempt:
        self.asked.append(claims)
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Attempt({claim.uid: ClaimResult(claim, entry=b"ok") for claim in claims})


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    owner = Tasks()
    yield owner
    await owner.close()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_second_call_joins_and_asks_only_for_what_is_not_in_flight(tasks: Tasks) -> None:
    flights, driver = Flights(tasks), Driver()
    first = tasks.start("first", flights.ask("d", [A], driver.send, 5.0))
    await settle()
    second = tasks.start("second", flights.ask("d", [A, B], driver.send, 5.0))
    await settle()
    assert driver.asked == [(A,), (B,)]
    assert flights.in_flight("d", [A.uid])
    assert not flights.in_flight("other", [A.uid])
    driver.answer.set()
    assert len(await first) == 1
    uids = {uid for attempt in await second for uid in attempt.results}
    assert uids == {A.uid, B.uid}
    assert not flights.in_flight("d", [A.uid, B.uid])


async def test_an_attempt_that_landed_is_not_joined(tasks: Tasks) -> None:
    flights, driver = Flights(tasks), Driver()
    driver.answer.set()
    await flights.ask("d", [A], driver.send, 5.0)
    await flights.ask("d", [A], driver.send, 5.0)
    assert driver.asked == [(A,), (A,)]


async def test_an_attempt_is_cancelled_only_when_nobody_waits_for_it(tasks: Tasks) -> None:
    flights, driver = Flights(tasks), Driver()
    first = tasks.start("first", flights.ask("d", [A], driver.send, 5.0))
    await settle()
    second = tasks.start("second", flights.ask("d", [A], driver.send, 5.0))
    await settle()
    first.cancel()
    await settle()
    assert driver.cancelled == 0
    second.cancel()
    await settle()
    assert driver.cancelled == 1
    assert not flights.in_flight("d", [A.uid])


async def test_time_runs_out_for_the_one_who_waits(tasks: Tasks) -> None:
    flights, driver = Flights(tasks), Driver()
    assert await flights.ask("d", [A], driver.send, 0.01) == []
    await settle()
    assert driver.cancelled == 1


async def test_landed_waits_for_the_attempt_or_the_time(tasks: Tasks) -> None:
    flights, driver = Flights(tasks), Driver()
    assert await flights.landed("d", [A.uid], 0.0)
    call = tasks.start("call", flights.ask("d", [A], driver.send, 5.0))
    await settle()
    assert not await flights.landed("d", [A.uid], 0.01)
    driver.answer.set()
    assert await flights.landed("d", [A.uid], 5.0)
    await call
