"""For all tests: loops are uvloop's, as in the program, and generated examples can be repeated."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping

import uvloop
from hypothesis import HealthCheck, settings

# The same examples in every run, whatever the machine's speed: a red test can be repeated. What
# looks for new ones is in `make long`, and says how to repeat what it found.
settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}
