"""For all tests: loops are uvloop's, as in the program, and generated examples can be repeated."""

from __future__ import annotations

import logging
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping

import pytest
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


@pytest.fixture(autouse=True)
def only_words_of_this_test(caplog: pytest.LogCaptureFixture) -> None:
    """An exporter whose collector is away tries again in its own thread, after its test's end."""
    caplog.handler.addFilter(_of_this_test)


def _of_this_test(record: logging.LogRecord) -> bool:
    theirs = record.name.startswith("opentelemetry")
    return not theirs or record.thread == threading.main_thread().ident


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}
