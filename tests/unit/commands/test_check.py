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
