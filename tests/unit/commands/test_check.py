from pathlib import Path

import pytest

from agent.commands import check
from agent.errors import UserError
from agent.settings.load import load

HEAD = "apiVersion: dra-agent.io/v1alpha1\nkind: AgentConfig\n"


def test_highlights(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        HEAD + "mode: enforce\nregistration: intake\nreport: {enabled: false}\n"
        "drivers: {deny: [b.example], perDriver: {c.example: {mode: observe, retry: {}}}}\n"
    )
    said = check.check(str(path), {})
    assert said.startswith(f"{path}: OK\n")
    for words in ("enforce", "intake", "never b.example", "c.example: mode observe", "pure proxy"):
        assert words in said


def test_the_environment_is_laid_over_it(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD)
    assert "enforce" in check.check(str(path), {"DRA_AGENT_MODE": "enforce"})


def test_the_whole_effective_config(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + "log: {level: debug}\n")
    said = check.check(str(path), {}, whole=True)
    path.write_text(said)
    assert load(str(path), env={}).log.level == "debug"


def test_rule_files_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + f"rules: {{files: [{tmp_path}/none.yaml]}}\n")
    with pytest.raises(UserError, match="no such file"):
        check.check(str(path), {})


def test_everything_it_names_is_checked_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + "mode: x\nrules: {files: [/r]}\nreport: {kubeconfig: /k}\n")
    with pytest.raises(UserError) as caught:
        check.check(str(path), {})
    assert ["mode" in caught.value.problems[0], len(caught.value.problems)] == [True, 3]


def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + "taint: {enabled: true}\n")
    assert "  note: taint.enabled has no effect yet" in check.check(str(path), {})


@pytest.mark.parametrize("mode", ["mode: enforce", "drivers: {perDriver: {a: {mode: enforce}}}"])
def test_where_pods_are_failed(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + mode)
    assert "pods:         failed only on kubelet 1.34, 1.37" in check.check(str(path), {})
    path.write_text(HEAD)
    assert "pods:" not in check.check(str(path), {})
