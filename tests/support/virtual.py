"""An event loop whose clock jumps: seconds of waiting cost nothing and come out the same each time.

Only for code without sockets: nothing from outside wakes it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any


class Stuck(AssertionError):
    """Something is awaited that nothing will ever bring."""


class _Selector(selectors.BaseSelector):
    """Never blocks: where the loop would sleep, its clock is moved instead."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("no timer is set and nothing is ready")
        # What comes next is due at once, whatever was lost in the addition.
        self.now += max(0.0, timeout) + 1e-9
        return self._real.select(0)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and moves only to the next timer."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def settle(self, rounds: int = 100) -> None:
        """Run what is ready now, and what that makes ready; a handful of nanoseconds pass."""

        async def turn() -> None:
            for _ in range(rounds):
                await asyncio.sleep(0)

        self.run_until_complete(turn())

    def pass_time(self, seconds: float) -> None:
        """Let time go by."""
        self.run_until_complete(asyncio.sleep(seconds))
