"""One prepare per (driver, claim UID) at a time; a second call joins the one in flight (rule 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.aio import Tasks
from agent.core.answer import RawAnswer
from agent.core.model import ClaimRef, ClaimResult


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one driver call brought, by claim UID."""

    results: Mapping[str, ClaimResult]
    raw: RawAnswer | None = None


class _Flight:
    def __init__(self, task: asyncio.Task[Attempt]) -> None:
        self.task = task
        self.waiters = 0


class Flights:
    """All prepare attempts in flight."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._by_claim: dict[tuple[str, str], _Flight] = {}

    async def ask(
        self,
        driver: str,
        claims: Sequence[ClaimRef],
        send: Callable[[tuple[ClaimRef, ...]], Awaitable[Attempt]],
        timeout: float,
    ) -> list[Attempt]:
        """Send what is not in flight, join what is, and wait for all of it at most `timeout`.

        A flight that outlasts the time is not in the list. It is cancelled once nobody waits for
        it, as kubelet's own call would be.
        """
        found = (self._by_claim.get(key) for key in self._keys(driver, claims))
        flights = {flight for flight in found if flight is not None}
        mine = tuple(c for c in claims if (driver, c.uid) not in self._by_claim)
        if mine:
            flights.add(self._launch(driver, mine, send))
        for flight in flights:
            flight.waiters += 1
        try:
            await asyncio.wait({flight.task for flight in flights}, timeout=timeout)
            return [flight.task.result() for flight in flights if flight.task.done()]
        finally:
            for flight in flights:
                flight.waiters -= 1
                if not flight.waiters:
                    flight.task.cancel()

    def in_flight(self, driver: str, uids: Iterable[str]) -> bool:
        """True while a driver works on any of these claims."""
        return any((driver, uid) in self._by_claim for uid in uids)

    async def landed(self, driver: str, uids: Iterable[str], timeout: float) -> bool:
        """Wait until none of these claims is in flight; False when the time ran out."""
        flights = [self._by_claim.get((driver, uid)) for uid in uids]
        tasks = {flight.task for flight in flights if flight is not None}
        if not tasks:
            return True
        _, pending = await asyncio.wait(tasks, timeout=max(0.0, timeout))
        return not pending

    def _launch(
        self,
        driver: str,
        claims: tuple[ClaimRef, ...],
        send: Callable[[tuple[ClaimRef, ...]], Awaitable[Attempt]],
    ) -> _Flight:
        keys = self._keys(driver, claims)

        async def run() -> Attempt:
            try:
                return await send(claims)
            finally:  # in the task itself: nobody may join what has already landed
                self._forget(keys, flight)

        flight = _Flight(self._tasks.start(f"prepare {driver} {claims[0].uid}", run()))
        for key in keys:
            self._by_claim[key] = flight
        # a task cancelled before its first step never reaches its finally
        flight.task.add_done_callback(lambda _: self._forget(keys, flight))
        return flight

    def _forget(self, keys: list[tuple[str, str]], flight: _Flight) -> None:
        for key in keys:
            if self._by_claim.get(key) is flight:
                del self._by_claim[key]

    @staticmethod
    def _keys(driver: str, claims: Sequence[ClaimRef]) -> list[tuple[str, str]]:
        return [(driver, claim.uid) for claim in claims]
