from __future__ import annotations

import msgspec
import pytest

from agent.settings.outputs import Report


def test_escalation_has_sane_defaults() -> None:
    report = Report()
    assert (report.escalate_after_attempts, float(report.escalate_after)) == (6, 600.0)


def test_one_attempt_is_no_history() -> None:
    with pytest.raises(msgspec.ValidationError, match="escalateAfterAttempts"):
        msgspec.convert({"escalateAfterAttempts": 1}, Report)
