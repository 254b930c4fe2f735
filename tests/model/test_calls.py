"""The proxy keeps its promises whatever kubelet, driver and agent do, and in whatever order."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.faults import FAULTS, Plant
from tests.model.machine import Calls
from tests.support.ledger import BrokenError

QUIET = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
BASE = settings(suppress_health_check=QUIET)
SHORT = settings(BASE, max_examples=200, stateful_step_count=30)
LONG = settings(
    BASE, max_examples=10000, stateful_step_count=60, derandomize=False, print_blob=True
)
PLANTED = settings(
    BASE,
    max_examples=2000,
    stateful_step_count=30,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(120)
def test_any_order_of_calls() -> None:
    run_state_machine_as_test(Calls, settings=SHORT)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_any_order_of_calls_long() -> None:
    run_state_machine_as_test(Calls, settings=LONG)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_the_model_sees_a_planted_fault(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = FAULTS[plant]
    plant(monkeypatch)
    one = type("OneRule", (Calls,), {"watched": rule})
    with pytest.raises(BrokenError, match=f"^{rule}: "):
        run_state_machine_as_test(one, settings=PLANTED)
