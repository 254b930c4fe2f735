"""Waiting for a condition, with a limit; never a sleep and a hope."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], limit: float = 5.0) -> None:
    """Return when the condition holds; TimeoutError after `limit` seconds."""
    async with asyncio.timeout(limit):
        while not condition():
            await asyncio.sleep(0.002)
