import pytest

from agent.settings import tree
from agent.settings.model import AgentConfig
from agent.settings.notes import enforces, failing, notes


def config(**sections: object) -> AgentConfig:
    problems: list[str] = []
    made = tree.build(AgentConfig, sections, "", lambda path, what: problems.append(path))
    assert not problems
    return made


def test_the_defaults_have_none() -> None:
    assert list(notes(AgentConfig())) == []
    assert list(notes(config(mode="enforce"))) == []


@pytest.mark.parametrize(
    ("sections", "start"),
    [
        ({"taint": {"enabled": True}}, "taint.enabled has no effect"),
        ({"registration": {"intakeDir": "/x"}}, "registration.intakeDir has no effect"),
        ({"drivers": {"deny": ["*"]}}, "drivers.deny leaves no driver"),
        ({"drivers": {"allow": ["a.b"], "deny": ["a.*"]}}, "drivers.deny leaves no driver"),
        ({"drivers": {"allow": ["a.*"], "deny": ["a.*", "b"]}}, "drivers.deny leaves no driver"),
        ({"mode": "enforce", "report": {"enabled": False}}, "report.enabled is false: no pod"),
    ],
)
def test_one_each(sections: dict[str, object], start: str) -> None:
    (found,) = notes(config(**sections))
    assert found.startswith(start)


@pytest.mark.parametrize(
    "sections",
    [
        {"registration": {"kind": "intake", "intakeDir": "/x"}},
        {"drivers": {"deny": ["a.*"]}},
        {"drivers": {"allow": ["a.*", "b"], "deny": ["b", "a.?"]}},
    ],
)
def test_what_has_an_effect(sections: dict[str, object]) -> None:
    assert list(notes(config(**sections))) == []


def test_where_pods_are_failed() -> None:
    assert not enforces(AgentConfig())
    assert enforces(config(drivers={"perDriver": {"a": {"mode": "enforce"}}}))
    assert failing(config(outcome={"kubeletVersions": ["1.37"]})).startswith(
        "failed only on kubelet 1.37 ("
    )
    assert "is empty" in failing(config(outcome={"kubeletVersions": []}))
    assert "are Report" in failing(config(outcome={"parameters": "Report", "claim": "Report"}))
