"""The model with real sockets; and that a renewal never ends a call in flight."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from tests.model.faults import Plant
from tests.model.socketfaults import SOCKET_FAULTS, retired_in_use
from tests.model.sockets import Sockets
from tests.model.test_calls import BASE
from tests.support.ledger import PREPARE, BrokenError
from tests.support.modelnode import CLAIMS, DRIVER
from tests.support.node_standins import Plugin
from tests.support.realnode import RealNode
from tests.support.waiting import until

# Real time does not repeat itself: what is found is shown as it was, not made smaller.
ONCE = settings(BASE, phases=[Phase.generate], report_multiple_bugs=False)
SHORT = settings(ONCE, max_examples=12, stateful_step_count=20)
LONG = settings(ONCE, max_examples=600, stateful_step_count=40, derandomize=False, print_blob=True)
PLANTED = settings(ONCE, max_examples=300, stateful_step_count=20)


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(120)
def test_any_order_of_calls_on_sockets() -> None:
    run_state_machine_as_test(Sockets, settings=SHORT)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_any_order_of_calls_on_sockets_long() -> None:
    run_state_machine_as_test(Sockets, settings=LONG)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("plant", SOCKET_FAULTS, ids=lambda plant: plant.__name__)
def test_it_sees_a_planted_fault(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = SOCKET_FAULTS[plant]
    plant(monkeypatch)
    seen: list[str] = []
    one = type("OneRule", (Sockets,), {"watched": rule, "seen": seen})
    with pytest.raises((BrokenError, Flaky)):  # real time does not repeat itself
        run_state_machine_as_test(one, settings=PLANTED)
    assert set(seen) == {rule}


@pytest.mark.parametrize("seconds", [0.6, 1.0, 1.6])
def test_a_machine_that_stands_still_between_two_steps_proves_nothing(seconds: float) -> None:
    model = Sockets()
    try:
        model.start()
        model.prepare(wanted=CLAIMS[:1], limit=0.4)
        time.sleep(seconds)
        model.time_passes(pause=0.01)
        model.time_passes(pause=0.06)
    finally:
        model.teardown()


async def test_an_answer_that_is_late_for_no_such_reason_is_seen() -> None:
    node = RealNode()
    await node.start()
    try:
        node.call(PREPARE, CLAIMS[:1], 0.4)
        (ask,) = node.ledger.waiting()
        ask.deadline -= 20.0
        with pytest.raises(BrokenError, match="in time"):
            node.check()
    finally:
        await node.stop()


def changed(node: RealNode, before: Plugin | None) -> bool:
    return node.kubelet.newest(DRIVER) is not before


async def across_renewals() -> None:
    """A prepare lasts longer than it takes to retire the generation it came through."""
    node = RealNode()
    await node.start()
    try:
        generations = node.registry.links[DRIVER].generations
        node.call(PREPARE, CLAIMS[:1], 20.0)
        await until(lambda: node.driver.pending)
        for _ in range(2):
            before = node.kubelet.newest(DRIVER)
            node.renew()
            await until(functools.partial(changed, node, before))
        # Once the one in between is gone it was time for the oldest too.
        between = list(generations)[-2]
        await until(lambda: between not in generations)
        node.check()
        assert node.driver.pending, "the call was ended"
        node.driver.answer(0)
        await until(lambda: not node.ledger.waiting() or node.crashes)
        node.check()
        await until(lambda: len(generations) == 1)
    finally:
        await node.stop()


async def test_a_renewal_does_not_end_a_call_in_flight() -> None:
    await across_renewals()


async def test_one_that_did_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    retired_in_use(monkeypatch)
    with pytest.raises(AssertionError):
        await across_renewals()
