"""What the agent would do about a failure under a config, in words."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.classify import Explanation
from agent.core.model import Culprit, Failure, Kind, Verdict
from agent.settings import durations
from agent.settings.model import AgentConfig, Retry

KUBELET_WAITS = 45.0
"""Seconds that kubelet gives a call; a constant in its source."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the agent would do: `attempts` is `once`, `limited`, `untilDeadline` or `none`."""

    attempts: str
    outcome: str  # "Report", "FailPod" or "Default" (depends on the pod's owner)
    held: bool
    lines: tuple[str, ...]


def would_do(found: Explanation, config: AgentConfig, failure: Failure) -> Plan:
    """Say what the agent would do about this failure under this config."""
    if failure.operation == "unprepare":
        line = "Passes it on: kubelet repeats an unprepare itself, and only the driver may answer."
        return Plan("once", "Report", False, (line,))
    if found.verdict.kind is Kind.PERMANENT:
        return _permanent(found.verdict, config, failure.driver)
    return _retried(found.verdict, config.retry_of(failure.driver))


def _retried(verdict: Verdict, retry: Retry) -> Plan:
    report = "Tells it in the pod's status; the pod is never failed for this."
    if verdict.single_attempt:
        once = "Asks the driver once per kubelet call: a repeat is a risk with this driver."
        return Plan("once", "Report", False, (once, report))
    asked = verdict.retry_after or 0.0
    if asked >= KUBELET_WAITS - retry.margin:
        line = (
            f"Answers at once: the driver asks for a longer delay ({durations.render(asked)}) "
            "than kubelet waits. kubelet's next call comes 60-90 s later."
        )
        return Plan("none", "Report", False, (line, report))
    delay = f" Not before {durations.render(asked)} are over, as the driver asks." if asked else ""
    if verdict.max_attempts is not None:
        twice = f"Repeats it once per kubelet call: more is a risk with this driver.{delay}"
        return Plan("limited", "Report", False, (twice, report))
    pace = (
        f"waiting {durations.render(retry.initial_delay)}, doubling to "
        f"{durations.render(retry.max_delay)}"
    )
    if asked > retry.initial_delay:
        pace = f"not before {durations.render(asked)} are over each time, as the driver asks"
    if verdict.kind is Kind.TRANSIENT:
        until = f"until {durations.render(retry.margin)} before kubelet's deadline"
        line = f"Asks the driver again inside the same kubelet call, {pace}, {until}."
        return Plan("untilDeadline", "Report", False, (line, report))
    if asked >= retry.ambiguous_time and retry.ambiguous_attempts > 1:
        line = f"Asks once more, not before {durations.render(asked)} are over, as the driver asks."
        return Plan("limited", "Report", False, (line, report))
    limit = (
        f"at most {retry.ambiguous_attempts} attempts or "
        f"{durations.render(retry.ambiguous_time)} per kubelet call"
    )
    return Plan("limited", "Report", False, (f"Asks again, {pace}, {limit}.", report))


def _permanent(verdict: Verdict, config: AgentConfig, driver: str) -> Plan:
    acts = verdict.explicit or config.mode_of(driver) == "enforce"
    outcome = _outcome(verdict.culprit, config)
    hold = (
        f"Answers kubelet's repeats itself for {durations.render(config.outcome.hold)}, doubling "
        f"to {durations.render(config.outcome.hold_max)}; the driver is not asked."
    )
    if acts:
        return Plan(
            "none", outcome, True, ("Does not ask again.", hold, _says(outcome, verdict.culprit))
        )
    return Plan(
        "none",
        "Report",
        False,
        (
            "Does not ask again within this kubelet call; kubelet's next call (60-90 s later) "
            "reaches the driver.",
            "Tells it in the pod's status.",
            f"In enforce mode: {_lower(hold)} {_says(outcome, verdict.culprit)}",
        ),
    )


def _outcome(culprit: Culprit, config: AgentConfig) -> str:
    if culprit is Culprit.PARAMETERS:
        return config.outcome.parameters
    if culprit is Culprit.CLAIM:
        return config.outcome.claim
    return "Report"


def _says(outcome: str, culprit: Culprit) -> str:
    if outcome == "FailPod":
        return "Fails the pod, where its kind and state allow it."
    if outcome == "Default":
        return "Fails the pod of a Job or a bare pod, where its state allows it; else tells it."
    if culprit is Culprit.DEVICE:
        return "Tells it in the pod's status; without a taint a new pod could get the same device."
    return "Tells it in the pod's status; a new pod on this node would meet the same."


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]
