"""Waiting for a condition, with a limit and a reason when the limit is reached."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], limit: float, what: str = "", every: float = 0.05) -> T:
    """Returns the first true answer of `condition`; raises AssertionError after `limit` seconds.

    An AssertionError or OSError of the condition counts as "not yet" (a refused connection, a file
    that is not there) and is shown when the time is up; anything else is a bug and passes through.
    """
    end = time.monotonic() + limit
    while True:
        last: object
        try:
            answer = condition()
            if answer:
                return answer
            last = answer
        except (AssertionError, OSError) as error:
            last = error
        if time.monotonic() > end:
            name = what or getattr(condition, "__name__", "condition")
            raise AssertionError(f"{name}: not within {limit:g} s; last seen: {last!r:.2000}")
        time.sleep(every)


def stays(condition: Callable[[], object], seconds: float, what: str = "") -> None:
    """Fails as soon as `condition` is no longer true within the next `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition(), f"{what or 'condition'}: no longer true"
        time.sleep(0.05)
