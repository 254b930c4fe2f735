from __future__ import annotations

import pytest

from agent.commands.outlook import would_do
from agent.core.classify import Explanation
from agent.core.model import Culprit, Failure, Kind, Surface, Verdict
from agent.settings.durations import Duration
from agent.settings.model import AgentConfig, Retry

FAILURE = Failure("a.example", "prepare", Surface.CLAIM_ERROR, "x")


def plan(kind: Kind, asked: float | None, attempts: int | None = None) -> tuple[str, str]:
    verdict = Verdict(kind, Culprit.UNKNOWN, "r", max_attempts=attempts, retry_after=asked)
    found = would_do(Explanation(verdict), AgentConfig(), FAILURE)
    return found.attempts, found.lines[0]


@pytest.mark.parametrize("kind", [Kind.TRANSIENT, Kind.AMBIGUOUS])
def test_a_delay_beyond_kubelets_deadline_is_answered_at_once(kind: Kind) -> None:
    for attempts in (None, 2):
        how, line = plan(kind, 60.0, attempts)
        assert how == "none"
        assert line.startswith("Answers at once: the driver asks for a longer delay (1m) than")
    assert plan(kind, 41.0)[0] != "none"
    assert plan(kind, 42.0)[0] == "none"


def test_a_delay_is_told_where_it_is_kept_to() -> None:
    how, line = plan(Kind.TRANSIENT, 20.0)
    assert (how, "not before 20s" in line, "250ms" in line) == ("untilDeadline", True, False)
    how, line = plan(Kind.AMBIGUOUS, 20.0)
    assert (how, line.startswith("Asks once more, not before 20s")) == ("limited", True)
    assert "not before 2s" in plan(Kind.AMBIGUOUS, 2.0)[1]
    assert "Not before 20s" in plan(Kind.TRANSIENT, 20.0, 2)[1]
    assert plan(Kind.TRANSIENT, 20.0, 1)[0] == "once"


def test_a_delay_shorter_than_our_own_changes_nothing() -> None:
    assert plan(Kind.TRANSIENT, 0.1) == plan(Kind.TRANSIENT, None)


def test_one_attempt_is_one_attempt() -> None:
    config = AgentConfig(retry=Retry(ambiguous_attempts=1, initial_delay=Duration(0.25)))
    verdict = Verdict(Kind.AMBIGUOUS, Culprit.UNKNOWN, "r", retry_after=20.0)
    assert "at most 1 attempts" in would_do(Explanation(verdict), config, FAILURE).lines[0]
