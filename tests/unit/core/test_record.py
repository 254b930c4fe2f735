from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.context import Blocker, Context, SliceDevice
from agent.core.history import CAUSE_LIMIT, told
from agent.core.model import CallFact, Culprit, DeviceState
from agent.core.record import build
from tests.support.kube_records import (
    BUSY,
    GPU,
    NET,
    PARAMETERS,
    claim,
    fact,
    histories,
    outcome,
    record,
    ref,
)

FAILED, PREPARED = DeviceState.FAILED, DeviceState.PREPARED
BLOCKED, PENDING = DeviceState.BLOCKED, DeviceState.PENDING


def states(claims: list[object], *facts: CallFact) -> dict[str, str]:
    made = record(claims, *facts)  # type: ignore[arg-type]
    return {d.device.device: str(d.state) for d in made.devices}


TWO = [claim("c1", "eth0", driver=NET), claim("c2", "gpu-0", "gpu-1")]
BAD_DEVICE = replace(PARAMETERS, device="gpu-1")
NET_OK = fact(outcome("c1", PREPARED), driver=NET)
GPU_BAD = fact(outcome("c2", FAILED, BAD_DEVICE), driver=GPU)


@pytest.mark.parametrize("facts", list(itertools.permutations([NET_OK, GPU_BAD])))
def test_order_of_drivers_does_not_matter(facts: tuple[CallFact, ...]) -> None:
    assert states([*TWO], *facts) == {"eth0": "prepared", "gpu-0": "blocked", "gpu-1": "failed"}


def test_worst_first() -> None:
    made = record(TWO, NET_OK, GPU_BAD)
    assert [d.device.device for d in made.devices] == ["gpu-1", "gpu-0", "eth0"]


def test_driver_not_asked_yet_is_pending() -> None:
    assert states([*TWO], GPU_BAD)["eth0"] == "pending"


def test_unnamed_device_blames_all_of_claim_and_driver() -> None:
    mixed = claim("c", "gpu-0", "gpu-1", f"{NET}/eth0")
    assert states([mixed], fact(outcome())) == {
        "gpu-0": "failed", "gpu-1": "failed", "eth0": "pending",
    }  # fmt: skip


def test_named_device_that_is_not_allocated_is_ignored() -> None:
    verdict = replace(PARAMETERS, device="gpu-9")
    found = states([claim("c", "gpu-0", "gpu-1")], fact(outcome("c", FAILED, verdict)))
    assert set(found.values()) == {"failed"}


def test_claims_left_unasked_are_blocked() -> None:
    call = fact(outcome("c1"), outcome("c2", BLOCKED, attempts=0))
    assert states([claim("c1", "a"), claim("c2", "b")], call) == {"a": "failed", "b": "blocked"}


def test_cause_and_verdict_only_where_failed() -> None:
    made = record(TWO, NET_OK, GPU_BAD)
    assert [d.cause for d in made.devices] == ["invalid sharing strategy", "", ""]
    assert [bool(d.verdict) for d in made.devices] == [True, False, False]


def test_attempts_add_up_over_calls_and_not_within_one() -> None:
    facts = [
        fact(outcome(verdict=BUSY, attempts=2), final=False),
        fact(outcome(verdict=BUSY, attempts=3), final=False),
        fact(outcome(verdict=BUSY, attempts=4, error="first")),
        fact(outcome(verdict=BUSY, attempts=1, error="second"), final=False),
    ]
    (history,) = histories(*facts).values()
    assert (history.attempts, history.final) == (5, False)
    assert history.first_error == "invalid sharing strategy"
    assert history.last_error == "second"
    (history,) = histories(*facts, fact(outcome("c", PREPARED))).values()
    assert (history.attempts, history.state) == (5, PREPARED)
    assert history.troubled
    assert not told(history).troubled


def test_held_verdict_does_not_count_attempts_again() -> None:
    first = fact(outcome(attempts=3))
    (history,) = histories(first, fact(outcome(attempts=3, held=True))).values()
    assert (history.attempts, history.held) == (3, True)


def test_retrying_only_while_nothing_is_final() -> None:
    going = fact(outcome("c1", verdict=BUSY), final=False)
    claims = [claim("c1", "a"), claim("c2", "b")]
    assert record(claims, going).retrying
    assert not record(claims, going, fact(outcome("c2"))).retrying
    assert not record(claims, NET_OK).retrying


def test_recovered_needs_every_served_driver() -> None:
    ok = fact(outcome("c2", PREPARED, attempts=3))
    made = record(TWO, ok)
    assert not made.recovered(frozenset({GPU, NET}))
    assert made.recovered(frozenset({GPU}))
    assert record(TWO, ok, NET_OK).recovered(frozenset({GPU, NET}))
    assert not record([], ok).recovered(frozenset({GPU}))


def test_untroubled() -> None:
    assert not record(TWO, NET_OK).troubled
    assert record(TWO, fact(outcome("c2", PREPARED, attempts=2))).troubled


def test_histories_of_other_claims_are_left_out() -> None:
    made = record([claim("c1", "a")], fact(outcome("other")))
    assert made.failing == ()
    assert [d.state for d in made.devices] == [PENDING]


@given(st.text(max_size=3000))
def test_hostile_text_is_cleaned_and_bounded(text: str) -> None:
    (history,) = histories(fact(outcome(error="x\x1b[31m\n" + text))).values()
    assert "\n" not in history.last_error
    assert "\x1b" not in history.last_error
    assert len(history.last_error.encode()) <= CAUSE_LIMIT


def test_states_change_only_with_states() -> None:
    first = record(TWO, GPU_BAD)
    again = record(TWO, GPU_BAD, fact(outcome("c2", FAILED, BAD_DEVICE, error="other")))
    assert first.states == again.states
    assert first.states != record(TWO, GPU_BAD, NET_OK).states


UUID = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
SLICE = tuple(
    SliceDevice(GPU, "node-a", f"gpu-{i}", {"uuid": UUID[:-1] + str(i)}, ("k:NoSchedule",))
    for i in range(3)
)


def test_a_drivers_own_identifier_blames_the_device() -> None:
    verdict = replace(PARAMETERS, culprit=Culprit.DEVICE, device=UUID[:-1] + "1", span=(3, 9))
    facts = histories(fact(outcome("c2", FAILED, verdict)))
    made = build(TWO[1:], facts, context=Context(SLICE))
    assert [(d.device.device, str(d.state), d.at_fault) for d in made.devices] == [
        ("gpu-1", "failed", True), ("gpu-0", "blocked", False),
    ]  # fmt: skip
    first = made.devices[0]
    assert first.blame is not None
    assert (first.blame.rule, first.blame.span) == ("bad-strategy", (3, 9))
    assert first.taints == ("k:NoSchedule",)
    blind = build(TWO[1:], facts)
    assert [(str(d.state), d.at_fault) for d in blind.devices] == [("failed", False)] * 2
    # One that another claim has: nobody of this claim is blamed.
    foreign = replace(verdict, device=UUID[:-1] + "2")
    made = build(TWO[1:], histories(fact(outcome("c2", FAILED, foreign))), context=Context(SLICE))
    assert [(str(d.state), d.at_fault) for d in made.devices] == [("failed", False)] * 2
    assert {d.verdict and d.verdict.culprit for d in made.devices} == {Culprit.DEVICE}


def test_a_device_that_failed_for_other_reasons_is_not_at_fault() -> None:
    made = record(TWO, GPU_BAD)  # culprit parameters
    assert made.devices[0].blame is not None
    assert not made.devices[0].at_fault


def test_context_of_prepared_devices_is_left_out() -> None:
    found = Context(SLICE, {(GPU, "uid-c2"): Blocker(ref("x"))})
    made = build(TWO[1:], histories(fact(outcome("c2", PREPARED))), context=found)
    assert all(d.blocker is None and d.taints == () for d in made.devices)
