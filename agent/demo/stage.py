"""One scenario on one node: what it may do, and what it expects."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agent import names
from agent.demo.objects import Want
from agent.demo.periods import REAL_RESYNC
from agent.demo.processes import TookTooLong, until
from agent.demo.timeline import CREATED, RUNNING, Entry, collect
from agent.demo.world import World


@dataclass(slots=True)
class Stage:
    """`differs` holds a sentence for each thing that did not go as told."""

    world: World
    agent: bool  # the node has one
    pod: str
    drivers: tuple[str, ...] = ()
    marks: list[Entry] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    frozen: list[Entry] = field(default_factory=list)

    def add_pod(self, *wants: Want) -> None:
        """Create the scenario's pod."""
        self.drivers = tuple(dict.fromkeys(want.driver for want in wants))
        self.world.add_pod(self.pod, *wants)

    def mark(self, who: str, what: str) -> None:
        """Put a line of our own into the timeline."""
        self.marks.append(Entry(time.time(), who, what))

    def freeze(self) -> None:
        """The story is over: what happens to the pod from now on is no part of it."""
        self.frozen = self.lines

    def expect(self, true: object, what: str) -> None:
        """Note what should have been and was not."""
        if not true:
            self.differs.append(f"expected: {what}")

    async def until(self, condition: Callable[[], object], what: str, limit: float) -> bool:
        """Wait; if it does not come, that is noted and False returned."""
        try:
            await until(condition, what, limit=limit)
        except TookTooLong as error:
            self.differs.append(str(error))
            return False
        return True

    async def runs(self, limit: float) -> None:
        """Wait until the pod runs."""
        await self.until(
            lambda: self.world.phase(self.pod) == "Running", f"pod {self.pod} to run", limit
        )

    @property
    def kubelet_calls(self) -> int:
        """How often kubelet tried to prepare the pod."""
        said = self.world.kubelet.said
        return sum(1 for one in said if one.pod == self.pod and one.what == "prepare")

    @property
    def driver_calls(self) -> int:
        """How often the driver was asked to prepare for the pod."""
        return sum(
            len(self.world.calls(driver, names.PREPARE, self.pod)) for driver in self.drivers
        )

    @property
    def sum(self) -> str:
        """How long the pod took, and what it would have been with kubelet's real periods."""
        entries = self.lines
        start = next(entry.wall for entry in entries if entry.what == CREATED)
        ran = next((entry.wall for entry in entries if entry.what == RUNNING), None)
        if ran is None:
            return ""
        text = f"Running after {ran - start:.1f} s"
        waits = self.kubelet_calls - 1
        if not waits:
            return f"{text}; the same on a real node."
        low, high = (seconds * waits for seconds in REAL_RESYNC)
        return f"{text}; on a real node {low:.0f}-{high:.0f} s, for kubelet waits {waits} time(s)."

    @property
    def lines(self) -> list[Entry]:
        """The timeline up to now, or up to freeze()."""
        return self.frozen or sorted([*collect(self.world, self.pod, self.drivers), *self.marks])
