from __future__ import annotations

from typing import Any

import pytest

from agent.commands import pod_text
from agent.core.classify import RuleSet
from agent.core.model import Culprit, Kind
from agent.core.rules import Pack, Repeat, Rule
from agent.settings.model import AgentConfig

RULES = RuleSet(
    [Rule("mine", Kind.PERMANENT, Culprit.DEVICE)],
    [Pack("p", ("once.example.com",), repeat=Repeat.NEVER)],
)


def device(**fields: Any) -> dict[str, Any]:
    return {
        "claim": "c",
        "driver": "a.example.com",
        "state": "failed",
        "cause": "x",
        "verdict": "permanent",
        "culprit": "parameters",
        "rule": "gone-since",
        **fields,
    }


def test_one_plan_for_each_failed_claim_and_driver() -> None:
    devices = [
        *(device(), device(), device(driver="b.example.com"), device(claim="d")),
        *(device(state="blocked", claim="e"), device(state="prepared", claim="f")),
    ]
    found = pod_text.plans(devices, RULES, AgentConfig())
    assert [(plan.claim, plan.driver) for plan in found] == [
        *(("c", "a.example.com"), ("c", "b.example.com"), ("d", "a.example.com"))
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("none", "Report", False)),
        ({"rule": "driver-permanent-error"}, ("none", "Default", True)),
        ({"verdict": "transient"}, ("untilDeadline", "Report", False)),
        ({"verdict": "ambiguous", "driver": "once.example.com"}, ("once", "Report", False)),
        ({"verdict": "ambiguous"}, ("limited", "Report", False)),
        ({"rule": "mine", "culprit": "device"}, ("none", "Report", False)),
        ({"verdict": "odd"}, ("none", "Report", False)),
        ({"cause": None, "verdict": None}, ("none", "Report", False)),
    ],
)
def test_what_was_written_decides(fields: dict[str, Any], expected: tuple[str, str, bool]) -> None:
    (found,) = pod_text.plans([device(**fields)], RULES, AgentConfig())
    plan = found.plan
    assert (plan.attempts, plan.outcome, plan.held) == expected
