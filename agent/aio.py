"""Tasks with a name, an owner and an end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from agent.errors import UserError

log = logging.getLogger(__name__)


async def wait(event: asyncio.Event, limit: float | None) -> bool:
    """Wait for an event for at most `limit` seconds (None: without end). True when it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit):
            await event.wait()
    return event.is_set()


class Tasks:
    """Owns background tasks: keeps them referenced, says when one crashes, ends them together.

    A task that raises is logged and reported to `on_crash`; it never ends silently.
    """

    def __init__(self, on_crash: Callable[[str, BaseException], None] | None = None) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_crash = on_crash

    def start(self, name: str, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a named task that this owner keeps until it ends."""
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            if isinstance(error, UserError):  # says all that there is to know
                log.error("task %s ended: %s", task.get_name(), error)
            else:
                log.error("task %s crashed", task.get_name(), exc_info=error)
            if self._on_crash is not None:
                self._on_crash(task.get_name(), error)

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def names(self) -> list[str]:
        """Names of the tasks that still run, sorted."""
        return sorted(task.get_name() for task in self._tasks)

    async def close(self) -> None:
        """Cancel all and wait until each has ended."""
        pending = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
