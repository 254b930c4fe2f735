from pathlib import Path

from agent.commands.settings import gather

HEAD = "apiVersion: dra-agent.io/v1alpha1\nkind: AgentConfig\n"


def test_what_is_good_is_there_beside_the_problems(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(HEAD + "mode: enforce\nrules: {files: [/r]}\nreport: {kubeconfig: /k}\n")
    config, problems = gather(str(file), env={})
    assert config.mode == "enforce"
    assert problems == [
        "rules.files[0]: /r: no such file",
        f"{file}: report.kubeconfig: no such file: /k; correct the path or leave it out",
    ]


def test_a_kubeconfig_that_is_not_used_is_not_looked_at(tmp_path: Path) -> None:
    flags = {"report.kubeconfig": "/k"}
    assert len(gather(None, env={}, flags=flags)[1]) == 1
    assert gather(None, env={}, flags=flags, reports=False)[1] == []
    assert gather(None, env={"DRA_AGENT_REPORT_ENABLED": "false"}, flags=flags)[1] == []
