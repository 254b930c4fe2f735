"""Waiting for a condition, with a limit; never a sleep and a hope."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Return when the condition holds; AssertionError that says `what` after ten seconds."""
    try:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true") from None
