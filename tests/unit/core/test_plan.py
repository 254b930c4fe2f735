"""The plan of one call: rules 4, 7, 8 and 10, by example and by property."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from agent.core.answer import whole_call_failure
from agent.core.held import Held
from agent.core.model import (
    ClaimRef,
    ClaimResult,
    Culprit,
    DeviceState,
    Failure,
    Kind,
    Surface,
    Transport,
    Verdict,
)
from agent.core.plan import Forward, Plan, Reply, RetryPolicy, Step, Wait

A, B = ClaimRef("ns", "uid-a", "a"), ClaimRef("ns", "uid-b", "b")
TRANSIENT = Verdict(Kind.TRANSIENT, Culprit.DRIVER, "t")
PERMANENT = Verdict(Kind.PERMANENT, Culprit.PARAMETERS, "p")
AMBIGUOUS = Verdict(Kind.AMBIGUOUS, Culprit.UNKNOWN, "default")


def failed(claim: ClaimRef, verdict: Verdict, text: str = "no") -> ClaimResult:
    return ClaimResult(claim, b"", Failure("d", "prepare", Surface.CLAIM_ERROR, text), verdict)


def ok(claim: ClaimRef) -> ClaimResult:
    return ClaimResult(claim, entry=b"entry")


def plan_of(
    *claims: ClaimRef,
    deadline: float = 45.0,
    held: Mapping[str, Held] | None = None,
    previous: Mapping[str, str] | None = None,
    policy: RetryPolicy | None = None,
) -> Plan:
    return Plan(
        claims,
        arrived_at=0.0,
        deadline=deadline,
        policy=policy or RetryPolicy(),
        held=held or {},
        previous=previous or {},
    )


def test_a_healthy_call_is_one_attempt_with_nearly_all_the_time() -> None:
    plan = plan_of(A, B)
    assert plan.next(0.0, 0.5, None) == Forward((A, B), 44.5)
    plan.attempt_ended([ok(A), ok(B)], 0.1, 1.0)
    step = plan.next(0.1, 0.5, None)
    assert isinstance(step, Reply)
    assert [result.ok for result in step.results if result] == [True, True]
    assert not plan.failed_before


def test_only_the_failing_claim_is_asked_again_after_a_growing_wait() -> None:
    plan = plan_of(A, B)
    plan.next(0.0, 0.0, None)
    plan.attempt_ended([ok(A), failed(B, TRANSIENT)], 1.0, 1.0)
    assert plan.next(1.0, 0.0, None) == Wait(0.25)
    assert plan.next(1.25, 0.0, None) == Forward((B,), 43.25)
    plan.attempt_ended([failed(B, TRANSIENT)], 2.0, 2.0)
    assert plan.next(2.0, 0.0, None) == Wait(0.5)
    assert plan.next(2.5, 0.0, None) == Forward((B,), 42.0)
    plan.attempt_ended([ok(B)], 3.0, 3.0)
    assert isinstance(plan.next(3.0, 0.0, None), Reply)
    outcome = plan.outcomes()[1]
    assert (outcome.state, outcome.attempts, outcome.first_wall) == (DeviceState.PREPARED, 3, 1.0)


def test_jitter_shortens_a_wait_and_never_lengthens_it() -> None:
    policy = RetryPolicy(jitter=0.5)
    assert policy.delay(1, 0.0) == 0.25
    assert policy.delay(1, 1.0) == 0.125
    assert policy.delay(60, 0.0) == 5.0


def test_a_permanent_failure_ends_the_call_at_once_and_blocks_siblings() -> None:
    plan = plan_of(A, B)
    plan.next(0.0, 0.0, None)
    plan.attempt_ended([failed(A, PERMANENT), failed(B, TRANSIENT)], 1.0, 1.0)
    step = plan.next(1.0, 0.0, None)
    assert isinstance(step, Reply)
    assert step.reason == "permanent failure"


def test_a_held_verdict_answers_without_asking_and_its_sibling_is_blocked() -> None:
    held = Held(failed(A, PERMANENT), 100.0, 3, "first", 1.0, 2.0)
    plan = plan_of(A, B, held={A.uid: held})
    step = plan.next(0.0, 0.0, None)
    assert isinstance(step, Reply)
    assert step.results == (held.result, None)
    assert [o.state for o in plan.outcomes()] == [DeviceState.FAILED, DeviceState.BLOCKED]


def test_an_unknown_failure_gets_four_attempts_or_five_seconds() -> None:
    plan = plan_of(A)
    now = 0.0
    attempts = 0
    while not isinstance(step := plan.next(now, 0.99, None), Reply):
        if isinstance(step, Wait):
            now += step.seconds
        else:
            attempts += 1
            plan.attempt_ended([failed(A, AMBIGUOUS)], now, now)
    assert attempts == 4
    slow = plan_of(A)
    slow.next(0.0, 0.0, None)
    slow.attempt_ended([failed(A, AMBIGUOUS)], 0.1, 1.0)
    slow.next(0.1, 0.0, None)
    assert isinstance(slow.next(5.1, 0.0, None), Reply)


def test_the_text_of_the_previous_call_is_not_tried_again() -> None:
    plan = plan_of(A, previous={A.uid: "same"})
    plan.next(0.0, 0.0, None)
    plan.attempt_ended([failed(A, AMBIGUOUS, "same")], 0.1, 1.0)
    assert isinstance(plan.next(0.1, 0.0, None), Reply)


def test_a_driver_that_must_not_be_asked_twice_is_not() -> None:
    once = Verdict(Kind.TRANSIENT, Culprit.DRIVER, "t", max_attempts=1)
    plan = plan_of(A)
    plan.next(0.0, 0.0, None)
    plan.attempt_ended([failed(A, once)], 0.1, 1.0)
    assert isinstance(plan.next(0.1, 0.0, None), Reply)


def test_an_absent_driver_is_waited_for_and_asked_the_moment_it_is_back() -> None:
    plan = plan_of(A)
    assert plan.next(0.0, 0.0, -2.0) == Wait(8.0, until_connected=True)
    assert plan.next(5.0, 0.0, None) == Forward((A,), 39.5)
    plan.attempt_ended([failed(A, TRANSIENT)], 6.0, 1.0)
    assert plan.next(6.0, 0.0, 6.0) == Wait(10.0, until_connected=True)
    assert plan.next(7.0, 0.0, None) == Forward((A,), 37.5)


def test_a_call_that_comes_after_the_hold_is_answered_with_why_it_was_not_asked() -> None:
    plan = plan_of(A, B)
    assert plan.next(20.0, 0.5, 3.0) == Wait(0.0, until_connected=True)
    gone = [failed(claim, TRANSIENT, "nobody is connected") for claim in plan.unasked]
    plan.driver_away(gone, 20.0)
    step = plan.next(20.0, 0.5, 3.0)
    assert isinstance(step, Reply)
    assert (step.results, step.reason) == (tuple(gone), "driver away")


def test_being_away_is_no_attempt_that_uses_up_an_unknown_failures_time() -> None:
    plan = plan_of(A)
    gone = Failure("d", "prepare", Surface.TRANSPORT, "x", None, Transport.GONE)
    plan.driver_away([ClaimResult(A, None, gone, AMBIGUOUS)], 3.0)
    assert isinstance(plan.next(7.0, 0.0, 0.0), Wait)
    assert isinstance(plan.next(7.5, 0.0, None), Forward)


def test_an_absent_driver_ends_the_call_when_the_hold_is_over() -> None:
    plan = plan_of(A)
    gone = ClaimResult(
        A, None, Failure("d", "prepare", Surface.TRANSPORT, "x", None, Transport.GONE), TRANSIENT
    )
    assert plan.unasked == (A,)
    plan.driver_away([gone], 3.0)
    step = plan.next(8.0, 0.0, -2.0)
    assert isinstance(step, Reply)
    assert step.reason == "driver away"
    assert plan.outcomes()[0].state is DeviceState.FAILED
    assert plan.outcomes()[0].attempts == 0
    assert whole_call_failure(step.results) == gone


def test_cancelling_ends_retries_but_gives_a_fresh_call_its_attempt_if_asked_so() -> None:
    at_once, later = plan_of(A), plan_of(A)
    at_once.cancel("pod deleted")
    assert isinstance(at_once.next(0.0, 0.0, None), Reply)
    later.cancel("stopping", at_once=False)
    assert isinstance(later.next(0.0, 0.0, None), Forward)
    later.attempt_ended([failed(A, TRANSIENT)], 1.0, 1.0)
    assert isinstance(later.next(1.0, 0.0, None), Reply)
    absent = plan_of(A)
    absent.cancel("stopping", at_once=False)
    assert absent.next(0.0, 0.0, 0.0) == Wait(0.0, until_connected=True)
    absent.driver_away([failed(A, TRANSIENT)], 1.0)
    assert isinstance(absent.next(0.0, 0.0, 0.0), Reply)


def test_a_short_deadline_leaves_room_for_one_attempt_only() -> None:
    plan = plan_of(A, deadline=0.3)
    step = plan.next(0.0, 0.0, None)
    assert isinstance(step, Forward)
    assert 0.28 < step.timeout < 0.3
    plan.attempt_ended([failed(A, TRANSIENT)], 0.01, 1.0)
    assert isinstance(plan.next(0.01, 0.0, None), Reply)


verdicts = st.sampled_from([TRANSIENT, PERMANENT, AMBIGUOUS, None])


@given(
    st.lists(st.tuples(verdicts, verdicts, st.floats(0.0, 12.0), st.booleans()), max_size=60),
    st.floats(0.0, 0.999),
    st.floats(0.1, 60.0),
)
def test_every_call_is_answered_before_its_deadline(
    script: list[tuple[Verdict | None, Verdict | None, float, bool]],
    jitter: float,
    deadline: float,
) -> None:
    """Whatever the driver does: steps respect the deadline, prepared claims are not asked again,
    nothing follows a permanent failure."""
    plan = plan_of(A, B, deadline=deadline)
    now, done, permanent = 0.0, set[str](), False
    away: float | None = None
    moves = iter(script)
    for _ in range(500):
        step: Step = plan.next(now, jitter, away)
        if isinstance(step, Reply):
            assert now < deadline
            for result, claim in zip(step.results, (A, B), strict=True):
                assert (result is not None and result.ok) == (claim.uid in done)
            return
        if isinstance(step, Wait):
            assert now + step.seconds < deadline
            now += step.seconds
            away = None
            continue
        assert not permanent
        assert not {claim.uid for claim in step.claims} & done
        assert now + step.timeout < deadline
        first, second, took, lost = next(moves, (None, None, 0.0, False))
        now += min(took, step.timeout)
        results = []
        for claim, verdict in ((A, first), (B, second)):
            if claim not in step.claims:
                continue
            permanent = permanent or verdict is PERMANENT
            results.append(failed(claim, verdict) if verdict else ok(claim))
            if verdict is None:
                done.add(claim.uid)
        away = now if lost else None
        plan.attempt_ended(results, now, now)
    raise AssertionError("the call never ended")


def waiting_plan(verdict: Verdict = TRANSIENT) -> Plan:
    """After a failed attempt, in a long wait."""
    plan = plan_of(A, policy=RetryPolicy(initial_delay=5.0, jitter=0.0, ambiguous_time=20.0))
    plan.next(0.0, 0.0, None)
    plan.attempt_ended([failed(A, verdict)], 1.0, 1.0)
    assert isinstance(plan.next(1.0, 0.0, None), Wait)
    return plan


def test_a_hurry_ends_the_wait_that_runs() -> None:
    plan = waiting_plan()
    assert plan.hurry()
    assert plan.next(2.0, 0.0, None) == Forward((A,), 42.5)
    plan.attempt_ended([failed(A, TRANSIENT)], 2.0, 2.0)
    assert plan.next(2.0, 0.0, None) == Wait(5.0), "once"


def test_a_hurry_during_an_attempt_skips_the_next_wait() -> None:
    plan = waiting_plan()
    plan.next(6.0, 0.0, None)
    plan.hurry()
    plan.attempt_ended([failed(A, TRANSIENT)], 7.0, 7.0)
    assert isinstance(plan.next(7.0, 0.0, None), Forward)


def test_hurries_are_bounded() -> None:
    plan = waiting_plan()
    for attempt in range(4):
        assert plan.hurry()
        assert isinstance(plan.next(2.0 + attempt, 0.0, None), Forward)
        plan.attempt_ended([failed(A, TRANSIENT)], 2.0 + attempt, 2.0)
    assert not plan.hurry()
    assert isinstance(plan.next(7.0, 0.0, None), Wait)


def test_a_hurry_for_the_claim_that_it_waits_for_is_never_refused_nor_counted() -> None:
    plan = plan_of(A, policy=RetryPolicy(initial_delay=5.0, jitter=0.0))
    plan.next(0.0, 0.0, None)
    held = f"held by claim {B.namespace}/{B.name}"
    plan.attempt_ended([failed(A, TRANSIENT, held)], 1.0, 1.0)
    stranger = ClaimRef("ns", "uid-c", "c")
    for attempt in range(12):
        assert plan.hurry([B]) if attempt % 2 else plan.hurry([stranger], certain=True)
        assert isinstance(plan.next(2.0 + attempt, 0.0, None), Forward)
        plan.attempt_ended([failed(A, TRANSIENT, held)], 2.0 + attempt, 2.0)
    for attempt in range(4):
        assert plan.hurry([stranger])
        assert isinstance(plan.next(20.0 + attempt, 0.0, None), Forward)
        plan.attempt_ended([failed(A, TRANSIENT, held)], 20.0 + attempt, 2.0)
    assert not plan.hurry([stranger])
    assert plan.hurry([stranger, B])


def test_unknown_failures_and_absent_drivers_do_not_hurry() -> None:
    plan = waiting_plan(AMBIGUOUS)
    plan.hurry()
    assert isinstance(plan.next(2.0, 0.0, None), Wait)
    plan = waiting_plan()
    plan.hurry()
    assert plan.next(2.0, 0.0, 1.5) == Wait(9.5, until_connected=True)


def test_a_hurry_does_not_outlast_the_deadline() -> None:
    plan = waiting_plan()
    plan.hurry()
    assert isinstance(plan.next(42.5, 0.0, None), Reply)


def test_the_driver_s_own_delay_is_kept_to_within_the_deadline() -> None:
    asks = Verdict(Kind.TRANSIENT, Culprit.DRIVER, "t", retry_after=7.0)
    plan = plan_of(A)
    plan.next(0.0, 0.0, None)
    plan.attempt_ended([failed(A, asks)], 1.0, 1.0)
    assert plan.next(1.0, 0.0, None) == Wait(7.0)
    assert isinstance(plan.next(8.0, 0.0, None), Forward)
    longer = Verdict(Kind.TRANSIENT, Culprit.DRIVER, "t", retry_after=3600.0)
    plan.attempt_ended([failed(A, longer)], 9.0, 9.0)
    step = plan.next(9.0, 0.0, None)
    assert isinstance(step, Reply)
    assert "no time left" in step.reason


def asks_for(seconds: float) -> Plan:
    """After one unknown failure for which the driver asks for a delay."""
    asks = Verdict(Kind.AMBIGUOUS, Culprit.UNKNOWN, "driver-marker", retry_after=seconds)
    plan = plan_of(A)
    plan.next(0.0, 0.0, None)
    plan.attempt_ended([failed(A, asks)], 1.0, 1.0)
    return plan


def test_after_the_delay_that_a_driver_asks_for_an_unknown_failure_is_tried_once() -> None:
    plan = asks_for(20.0)
    assert plan.next(1.0, 0.0, None) == Wait(20.0)
    assert isinstance(plan.next(21.0, 0.0, None), Forward)
    plan.attempt_ended([failed(A, AMBIGUOUS)], 21.1, 21.1)
    step = plan.next(21.1, 0.0, None)
    assert isinstance(step, Reply)
    assert "time used up" in step.reason


def test_a_delay_beyond_the_deadline_is_not_waited_for() -> None:
    step = asks_for(41.5).next(1.0, 0.0, None)
    assert isinstance(step, Reply)
    assert "no time left" in step.reason


def test_nobody_waits_for_an_attempt_that_will_not_be_made() -> None:
    plan = plan_of(A, policy=RetryPolicy(initial_delay=10.0, max_delay=10.0))
    plan.next(0.0, 0.0, None)
    plan.attempt_ended([failed(A, AMBIGUOUS)], 1.0, 1.0)
    step = plan.next(1.0, 0.0, None)
    assert isinstance(step, Reply)
    assert "time used up" in step.reason


def test_another_claims_delay_gives_an_unknown_failure_no_time() -> None:
    asks = Verdict(Kind.TRANSIENT, Culprit.DRIVER, "t", retry_after=20.0)
    plan = plan_of(A, B)
    plan.next(0.0, 0.0, None)
    plan.attempt_ended([failed(A, asks), failed(B, AMBIGUOUS)], 1.0, 1.0)
    assert isinstance(plan.next(1.0, 0.0, None), Reply)


def test_a_short_delay_of_the_driver_does_not_hurry_the_agent() -> None:
    asks = Verdict(Kind.TRANSIENT, Culprit.DRIVER, "t", retry_after=0.001)
    plan = plan_of(A)
    plan.next(0.0, 0.0, None)
    plan.attempt_ended([failed(A, asks)], 1.0, 1.0)
    assert plan.next(1.0, 0.0, None) == Wait(0.25)


def test_once_means_two_attempts() -> None:
    once = Verdict(Kind.TRANSIENT, Culprit.DRIVER, "t", max_attempts=2)
    plan = plan_of(A)
    plan.next(0.0, 0.0, None)
    plan.attempt_ended([failed(A, once)], 1.0, 1.0)
    assert isinstance(plan.next(1.0, 0.0, None), Wait)
    plan.next(2.0, 0.0, None)
    plan.attempt_ended([failed(A, once)], 3.0, 3.0)
    assert isinstance(plan.next(3.0, 0.0, None), Reply)


def test_what_is_told_of_a_text_of_megabytes_is_short_and_what_is_answered_is_whole() -> None:
    plan = plan_of(A)
    text = "begin " + "x" * 3_000_000 + " end"
    plan.attempt_ended([failed(A, PERMANENT, text)], 0.1, 1.0)
    step = plan.next(0.2, 0.5, None)
    assert isinstance(step, Reply)
    assert step.results[0] is not None
    assert step.results[0].failure is not None
    assert step.results[0].failure.text == text
    (outcome,) = plan.outcomes()
    for told in (outcome.first_error, outcome.last_error):
        assert len(told) < 20_000
        assert (told[:6], told[-4:]) == ("begin ", " end")
