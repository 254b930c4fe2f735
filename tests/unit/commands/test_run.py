import gc
import sys
from pathlib import Path
from types import ModuleType

import pytest

from agent import cli
from agent.commands import run
from agent.errors import UserError
from agent.reload import Source
from agent.settings.model import AgentConfig, NodeIdentity
from tests.unit.kube.test_kubeconfig import GOOD


def prepared(*argv: str, **env: str) -> tuple[AgentConfig, NodeIdentity]:
    return run.prepare(cli.build_parser().parse_args(["run", *argv]), env)


def test_the_least_that_is_needed() -> None:
    config, identity = prepared(NODE_NAME="n")
    assert config == AgentConfig()
    assert identity == NodeIdentity(node_name="n")


def test_every_flag(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kc"
    kubeconfig.write_text(GOOD)
    argv = (
        "--node-name=m --kubelet-root=/k/ --driver=a.example --pod-name=p --pod-namespace=ns "
        f"--pod-uid=u --mode=enforce --registration=intake --kubeconfig={kubeconfig} "
        "--http-listen= --log-level=debug --log-format=json"
    )
    config, identity = prepared(*argv.split(), NODE_NAME="n", POD_NAME="other")
    assert identity == NodeIdentity(
        node_name="m",
        kubelet_root="/k",
        pod_name="p",
        pod_namespace="ns",
        pod_uid="u",
        only_driver="a.example",
    )
    assert (config.mode, config.registration, config.http.listen) == ("enforce", "intake", "")
    assert (config.log.level, config.log.format) == ("debug", "json")
    assert config.report.kubeconfig == str(kubeconfig)


def test_the_pod_from_the_downward_api() -> None:
    _, identity = prepared(NODE_NAME="n", POD_NAME="p", POD_NAMESPACE="ns", POD_UID="u")
    assert (identity.pod_name, identity.pod_namespace, identity.pod_uid) == ("p", "ns", "u")


def test_all_problems_at_once() -> None:
    with pytest.raises(UserError) as caught:
        prepared("--kubelet-root=rel", "--driver=A", "--mode=x", "--config=/none")
    starts = [line.split(":")[0] for line in caught.value.problems]
    assert starts == ["no node name", "--kubelet-root", "--driver", "/none", "--mode"]


def test_config_rules_and_kubeconfig_are_checked_together(tmp_path: Path) -> None:
    file, rules, kubeconfig = tmp_path / "a.yaml", tmp_path / "rules.yaml", tmp_path / "kc"
    rules.write_text("garbage")
    kubeconfig.write_text(GOOD.replace("https://", "").replace("token: t", "token: 5"))
    file.write_text(
        "apiVersion: dra-agent.io/v1alpha1\nkind: AgentConfig\nmode: x\n"
        f"rules: {{files: [{rules}, /none]}}\nreport: {{kubeconfig: {kubeconfig}}}\n"
    )
    with pytest.raises(UserError) as caught:
        prepared("--node-name=n", f"--config={file}")
    at = f"{file}: report.kubeconfig: {kubeconfig}"
    for line, start in zip(
        caught.value.problems,
        (
            f"{file}: mode: expected one of",
            f"{rules}: expected a mapping",
            "rules.files[1]: /none: no such file",
            f'{at}: cluster "k": server: expected a URL',
            f'{at}: user "u": token: expected text',
        ),
        strict=True,
    ):
        assert line.startswith(start)


def test_a_kubeconfig_that_cannot_be_used_is_said_before_anything_starts(tmp_path: Path) -> None:
    bad = tmp_path / "kc"
    bad.write_text("garbage")
    for path, words in (
        ("/none", "no such file"),
        (str(tmp_path), "is a directory"),
        (f"/none:{tmp_path}", "is a directory"),
        (str(bad), "not a kubeconfig"),
    ):
        with pytest.raises(UserError, match=f"^--kubeconfig: .*{words}"):
            prepared("--node-name=n", f"--kubeconfig={path}")
        variable = "DRA_AGENT_REPORT_KUBECONFIG"
        with pytest.raises(UserError, match=f"^environment variable {variable}: .*{words}"):
            prepared("--node-name=n", **{variable: path})
    prepared("--node-name=n", "--kubeconfig=/none", DRA_AGENT_REPORT_ENABLED="false")


def test_a_strange_node_name_is_refused() -> None:
    with pytest.raises(UserError, match="not a node name"):
        prepared("--node-name=../x")


def test_the_app_gets_both_and_its_code_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    app = ModuleType("agent.app")
    seen: list[object] = []

    def start(config: AgentConfig, identity: NodeIdentity, source: Source) -> int:
        seen.extend((config, identity, source))
        return 7

    app.run = start  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "agent.app", app)
    monkeypatch.setattr("agent.app", app, raising=False)
    args = cli.build_parser().parse_args(["run", "--node-name=n"])
    try:
        assert run.run(args, {}) == 7
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    assert seen == [AgentConfig(), NodeIdentity(node_name="n"), Source(None, {}, {})]
