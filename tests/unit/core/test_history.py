from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.history import Limits, Run, merge, told
from agent.core.model import Culprit, DeviceState, Kind, Verdict
from tests.support.kube_records import BUSY, PARAMETERS, fact, outcome

STRANGE = Verdict(Kind.AMBIGUOUS, Culprit.UNKNOWN, "default")
OTHER = replace(STRANGE, rule="other")
LIMITS = Limits(attempts=6, seconds=600.0)
PREPARED = DeviceState.PREPARED


def run_of(*calls: tuple[Verdict | None, float, int, bool]) -> Run | None:
    """Calls are (verdict or None for prepared, time, attempts in the call, final)."""
    history = None
    for verdict, at, attempts, final in calls:
        state = DeviceState.FAILED if verdict else PREPARED
        one = outcome("c", state, verdict, attempts=attempts)
        history = merge(history, one, fact(one, replied_at=at, final=final))
    assert history is not None
    return history.run


def test_attempts_and_time_must_both_be_reached() -> None:
    many = run_of(*[(STRANGE, float(t), 1, True) for t in range(20)])
    assert many is not None
    assert (many.attempts, many.seconds) == (20, 19.0)
    assert not many.beyond(LIMITS)
    long = run_of((STRANGE, 0.0, 1, True), (STRANGE, 900.0, 1, True))
    assert long is not None
    assert not long.beyond(LIMITS)
    both = run_of((STRANGE, 0.0, 4, True), (STRANGE, 600.0, 2, True))
    assert both is not None
    assert both.beyond(LIMITS)


def test_attempts_within_a_call_are_not_counted_twice() -> None:
    run = run_of(
        (STRANGE, 0.0, 1, False), (STRANGE, 1.0, 2, False), (STRANGE, 2.0, 2, True),
        (STRANGE, 60.0, 1, False),
    )  # fmt: skip
    assert run is not None
    assert (run.attempts, run.since, run.until) == (3, 0.0, 60.0)


def test_a_good_prepare_or_another_rule_begins_anew() -> None:
    assert run_of((STRANGE, 0.0, 4, True), (None, 5.0, 1, True)) is None
    run = run_of((STRANGE, 0.0, 4, True), (OTHER, 700.0, 1, True))
    assert run == Run("other", 700.0, 700.0, 1, 1)
    assert run_of((STRANGE, 0.0, 4, True), (PARAMETERS, 5.0, 1, True)) is None


def test_a_driver_restart_in_between_changes_nothing() -> None:
    run = run_of((STRANGE, 0.0, 3, True), (BUSY, 300.0, 9, True), (STRANGE, 600.0, 3, True))
    assert run is not None
    assert run.attempts == 6
    assert run.beyond(LIMITS)


def test_told_keeps_no_trouble() -> None:
    one = outcome("c", PREPARED, attempts=3)
    history = merge(None, one, fact(one))
    assert history.troubled
    assert not told(history).troubled


@given(
    st.lists(
        st.tuples(
            st.sampled_from([STRANGE, OTHER, BUSY, PARAMETERS, None]),
            st.floats(0, 300),
            st.integers(1, 5),
            st.booleans(),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_only_unknown_failures_without_a_good_prepare_escalate(
    calls: list[tuple[Verdict | None, float, int, bool]],
) -> None:
    now, timed = 0.0, []
    for verdict, pause, attempts, final in calls:
        now += pause
        timed.append((verdict, now, attempts, final))
    run = run_of(*timed)
    if run is None or not run.beyond(LIMITS):
        return
    since = next(i for i, call in enumerate(timed) if call[1] >= run.since and call[0])
    later = [call for call in timed[since:] if call[1] >= run.since]
    same = [call for call in later if call[0] and call[0].rule == run.rule]
    assert sum(call[2] for call in same) >= LIMITS.attempts
    assert same[-1][1] - run.since >= LIMITS.seconds
    ends = [call for call in timed if call[1] > run.since and call[0] in (None, PARAMETERS)]
    assert not [call for call in ends if call[1] > same[0][1] and call[1] < run.until]


@pytest.mark.parametrize("held", [True, False])
def test_time_of_the_drivers_own_words(held: bool) -> None:
    first = outcome("c")
    history = merge(None, first, fact(first, replied_at=5.0))
    again = outcome("c", held=held)
    assert merge(history, again, fact(again, replied_at=9.0)).at == (5.0 if held else 9.0)
