import json
from typing import Any

import pytest

from agent.commands import explain
from agent.core.model import Failure, Surface
from agent.settings.model import AgentConfig, Outcome, Retry, Rules
from agent.settings.rulefiles import load_rules

RULES = load_rules(Rules())
OBSERVE = AgentConfig()
ENFORCE = AgentConfig(mode="enforce")
PARAMETERS = "strict decoding error: unknown field x"


def failure(text: str, **more: Any) -> Failure:
    values = {"driver": "a.example", "operation": "prepare", "surface": Surface.CLAIM_ERROR, **more}
    return Failure(text=text, **values)


def as_json(config: AgentConfig, said: Failure) -> dict[str, Any]:
    found = json.loads(explain.explain(said, RULES, config, as_json=True))
    assert isinstance(found, dict)
    return found


def test_the_fields_of_the_json_form() -> None:
    found = as_json(OBSERVE, failure(PARAMETERS))
    assert found == {
        "apiVersion": "dra-agent.io/v1alpha1",
        "kind": "Explanation",
        "text": PARAMETERS,
        "driver": "a.example",
        "operation": "prepare",
        "surface": "claim_error",
        "code": None,
        "verdict": "permanent",
        "culprit": "parameters",
        "device": None,
        "rule": "parameters-unknown-field",
        "matched": "strict decoding error:",
        "explicit": False,
        "singleAttempt": False,
        "maxAttempts": None,
        "retryAfterSeconds": None,
        "blamed": None,
        "repeat": None,
        "hint": found["hint"],
        "source": found["source"],
        "mode": "observe",
        "attempts": "none",
        "outcome": "Report",
        "held": False,
        "notes": [],
    }


@pytest.mark.parametrize(
    ("config", "text", "more", "expected"),
    [
        (OBSERVE, "read: interrupted system call", {}, ("untilDeadline", "Report", False)),
        (OBSERVE, "who knows", {}, ("limited", "Report", False)),
        (OBSERVE, "who knows", {"driver": "dra.net"}, ("once", "Report", False)),
        (OBSERVE, "who knows", {"operation": "unprepare"}, ("once", "Report", False)),
        (OBSERVE, PARAMETERS, {}, ("none", "Report", False)),
        (OBSERVE, PARAMETERS, {"permanent_error": True}, ("none", "Default", True)),
        (ENFORCE, PARAMETERS, {}, ("none", "Default", True)),
        (ENFORCE, "claim a/b got replaced", {}, ("none", "Default", True)),
        (ENFORCE, "open /a: read-only file system", {}, ("none", "Report", True)),
        (
            AgentConfig(mode="enforce", outcome=Outcome(parameters="FailPod")),
            PARAMETERS,
            {},
            ("none", "FailPod", True),
        ),
    ],
)
def test_what_the_agent_would_do(
    config: AgentConfig, text: str, more: dict[str, Any], expected: tuple[str, str, bool]
) -> None:
    found = as_json(config, failure(text, **more))
    assert (found["attempts"], found["outcome"], found["held"]) == expected


def test_the_readable_form_says_all_that_matters() -> None:
    said = explain.explain(failure("x: requested gpu is not allocatable: g-1"), RULES, ENFORCE)
    for words in ("ambiguous", "device", "g-1", "device-not-allocatable", "in enforce mode"):
        assert words in said


def test_times_are_those_of_the_config() -> None:
    config = AgentConfig(retry=Retry(ambiguous_attempts=9))
    assert "at most 9 attempts" in explain.explain(failure("who knows"), RULES, config)


def test_other_drivers_rules_are_offered_when_none_was_named() -> None:
    text = "ComputeDomain not found: 1"
    assert as_json(OBSERVE, failure(text, driver=""))["notes"] == [
        "with --driver compute-domain.nvidia.com: permanent, parameters (compute-domain-not-found)"
    ]
    assert "--driver compute-domain" in explain.explain(failure(text, driver=""), RULES, OBSERVE)
    assert as_json(OBSERVE, failure(text))["notes"] == []


def test_hostile_text_is_shown_safely() -> None:
    text = "requested gpu is not allocatable: \x1b[31mx\u202e\n\x00" + "y" * 100_000
    said = explain.explain(failure(text), RULES, OBSERVE)
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert len(as_json(OBSERVE, failure(text))["text"].encode()) <= 4096
