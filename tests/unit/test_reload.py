"""Config and rules that change while the agent runs."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from agent import reload
from agent.app import App
from agent.commands.settings import gather
from agent.core.classify import RuleSet
from agent.core.model import Failure, Surface
from agent.kube.client import Kube
from agent.kube.errors import KubeError
from agent.reload import Reloader, Source, merged
from agent.settings.load import load
from agent.settings.model import AgentConfig, Http, NodeIdentity, Report, Retry
from tests.support.waiting import until

HEAD = "apiVersion: dra-agent.io/v1alpha1\nkind: AgentConfig\n"
RULES = "apiVersion: dra-agent.io/v1alpha1\nkind: FailureRules\nversion: 1\n"
RULE = "rules: [{{id: mine, text: 'card gone', verdict: {0}, culprit: node}}]\n"


class Case:
    """A config file, a rule file, and what the reloader does about them."""

    def __init__(self, root: Path) -> None:
        self.config, self.rules = root / "agent.yaml", root / "rules.yaml"
        self.rules.write_text(RULES + RULE.format("transient"))
        self.write("")
        self.applied: list[tuple[AgentConfig, RuleSet]] = []
        self.told: list[tuple[str, bool]] = []
        source = Source(str(self.config))
        self.reloader = Reloader(
            source, load(source.path, env={}), apply=self._apply, tell=self._tell
        )

    def write(self, more: str) -> None:
        self.config.write_text(f"{HEAD}rules: {{files: ['{self.rules}']}}\n{more}")

    def _apply(self, config: AgentConfig, rules: RuleSet) -> None:
        self.applied.append((config, rules))

    async def _tell(self, said: str, accepted: bool) -> None:
        self.told.append((said, accepted))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


async def test_policies_take_effect(case: Case) -> None:
    assert not await case.reloader.look()  # nothing changed
    case.write("mode: enforce\nretry: {maxDelay: 2s}\nreport: {retryingAfter: 9s}\n")
    assert await case.reloader.look()
    ((config, _),) = case.applied
    assert config.mode == "enforce"
    assert float(config.retry.max_delay) == 2.0
    assert float(config.report.retrying_after) == 9.0
    assert case.told == [("New config and rules are in force.", True)]


async def test_a_rule_file_that_changed_is_read(case: Case) -> None:
    case.rules.write_text(RULES + RULE.format("permanent"))
    assert await case.reloader.look()
    ((_, rules),) = case.applied
    assert rules.classify(Failure("d", "prepare", Surface.CLAIM_ERROR, "card gone")).permanent


@pytest.mark.parametrize(
    ("config", "rules", "words"),
    [
        ("mode: maybe\n", None, "mode: expected one of"),
        ("", "rules: [{id: mine, text: 'x+', verdict: permanent}]\n", "an unbounded repeat"),
    ],
)
async def test_a_bad_file_is_refused_and_the_old_one_kept(
    case: Case, caplog: pytest.LogCaptureFixture, config: str, rules: str | None, words: str
) -> None:
    case.write(config)
    if rules is not None:
        case.rules.write_text(RULES + rules)
    with caplog.at_level(logging.ERROR):
        assert not await case.reloader.look()
    assert case.applied == []
    ((said, accepted),) = case.told
    assert not accepted
    assert words in said
    assert any(words in line.getMessage() for line in caplog.records)
    assert not await case.reloader.look()  # said once
    case.write("mode: enforce\n")
    case.rules.write_text(RULES + RULE.format("transient"))
    assert await case.reloader.look()


@pytest.mark.parametrize("folder", ["", "other"])
async def test_a_rule_file_that_comes_after_its_config_is_waited_for(
    case: Case, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "POLL", 600.0)
    later = tmp_path / folder / "later.yaml"
    later.parent.mkdir(exist_ok=True)
    task = asyncio.get_running_loop().create_task(case.reloader.run())
    case.config.write_text(f"{HEAD}mode: enforce\nrules: {{files: ['{later}']}}\n")
    await until(lambda: case.told)
    assert case.told[0][0].endswith(f"rules.files[0]: {later}: no such file")
    later.write_text(RULES + RULE.format("permanent"))
    await until(lambda: case.applied)
    assert case.applied[0][0].mode == "enforce"
    task.cancel()


async def test_files_that_come_to_be_named_are_read_once(case: Case, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(RULES + RULE.format("permanent"))
    case.config.write_text(f"{HEAD}rules: {{files: ['{other}']}}\n")
    assert await case.reloader.look()
    assert not await case.reloader.look()
    case.rules.write_text("no longer of interest")
    assert not await case.reloader.look()
    other.write_text(RULES + RULE.format("transient"))
    assert await case.reloader.look()


async def test_all_that_is_wrong_is_said_at_once_as_at_start(case: Case, tmp_path: Path) -> None:
    case.rules.write_text(RULES + "rules: [{id: mine, text: 'x+', verdict: permanent}]\n")
    case.config.write_text(f"{HEAD}mode: x\nrules: {{files: ['{case.rules}', /none]}}\n")
    assert not await case.reloader.look()
    problems = gather(str(case.config), env={})[1]
    assert len(problems) == 3
    assert case.told == [(f"Refused, the old one stays. {'; '.join(problems)}", False)]


@pytest.mark.parametrize(
    "text",
    [
        "mode: !!bool maybe\n",
        'outcome: {hold: !!int ""}\n',
        'outcome: {hold: !!float ""}\n',
        "mode: !!timestamp soon\n",
        'rules: {files: ["/tmp/a\\0b"]}\n',
        'rules: {files: ["/tmp/\\ud800"]}\n',
        'mode: "\\UFFFFFFFF"\n',
    ],
)
async def test_no_value_ends_the_watch(case: Case, text: str) -> None:
    case.config.write_text(HEAD + text)
    assert not await case.reloader.look()
    assert not await case.reloader.look()
    ((said, accepted),) = case.told
    assert not accepted
    assert "defect" not in said
    case.write("mode: enforce\n")
    assert await case.reloader.look()


@pytest.mark.parametrize("where", ["collect", "apply", "tell"])
async def test_a_defect_of_ours_is_a_refusal_that_is_logged(
    case: Case, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("oops")

    target = {"collect": reload, "apply": case.reloader, "tell": case.reloader}[where]
    with monkeypatch.context() as patch:
        patch.setattr(target, where if where == "collect" else f"_{where}", broken)
        case.write("mode: enforce\n")
        assert await case.reloader.look() is (where == "tell")
    assert any(line.exc_info for line in caplog.records)
    if where != "tell":
        assert case.reloader.config.mode == "observe"
        said = "Refused, the old one stays. a defect of the agent: KeyError: 'oops'"
        assert case.told == [(said, False)]
    case.write("mode: enforce\nretry: {maxDelay: 2s}\n")
    assert await case.reloader.look()


async def test_a_file_that_is_gone_changes_nothing(case: Case) -> None:
    case.config.unlink()
    assert not await case.reloader.look()
    assert "no such file" in case.told[0][0]


async def test_what_needs_a_restart_is_said(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    case.write("mode: enforce\nregistration: intake\nhttp: {listen: '127.0.0.1:1'}\n")
    with caplog.at_level(logging.WARNING):
        assert await case.reloader.look()
    ((config, _),) = case.applied
    assert (config.mode, config.registration, config.http.listen) == (
        "enforce",
        "overlay",
        AgentConfig().http.listen,
    )
    assert case.told[0][0].endswith("a restart is needed for http.listen, registration.")
    assert any("restart" in line.getMessage() for line in caplog.records)


def test_merging_keeps_what_is_bound_at_start() -> None:
    new = AgentConfig(mode="enforce", retry=Retry(jitter=0.1), report=Report(events=False))
    config, pending = merged(AgentConfig(), new)
    assert (config.mode, config.retry.jitter, config.report.events) == ("enforce", 0.1, True)
    assert pending == ("report.events",)


def test_the_event_is_about_the_agent_s_own_pod() -> None:
    identity = NodeIdentity(node_name="n", pod_name="p", pod_namespace="ns", pod_uid="u")
    good = reload.event(identity, "x" * 5000, True, 1.0)
    bad = reload.event(identity, "no\nsuch", False, 1.0)
    long = NodeIdentity(node_name="n", pod_name=f"{'p' * 229}-{'p' * 23}", pod_namespace="ns")
    named = reload.event(long, "x", True, 1.0)["metadata"]
    assert isinstance(named, dict)
    assert named["name"].startswith(f"{'p' * 229}."), "a valid name"
    assert (good["type"], bad["type"]) == ("Normal", "Warning")
    assert (good["reason"], bad["reason"]) == ("ConfigReloaded", "ConfigRefused")
    assert len(str(good["note"]).encode()) <= 1024
    assert bad["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "ns",
        "name": "p",
        "uid": "u",
    }


class Api:
    """Takes events, or refuses them."""

    def __init__(self, error: KubeError | None = None) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._error = error

    async def create_event(self, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        if self._error is not None:
            raise self._error
        self.events.append((namespace, body))
        return body


async def test_an_event_is_written_where_the_pod_is_known_and_may_fail() -> None:
    known = NodeIdentity(node_name="n", pod_name="p", pod_namespace="ns", pod_uid="u")
    api = Api()
    await reload.tell(cast(Kube, api), known, "x", False)
    await reload.tell(cast(Kube, api), NodeIdentity(node_name="n"), "x", False)
    assert [(namespace, body["reason"]) for namespace, body in api.events] == [
        ("ns", "ConfigRefused")
    ]
    await reload.tell(cast(Kube, Api(KubeError("no"))), known, "x", True)


async def test_without_a_file_nothing_is_watched() -> None:
    async def tell(said: str, accepted: bool) -> None:
        raise AssertionError(said)

    reloader = Reloader(reload.FIXED, AgentConfig(), apply=lambda c, r: None, tell=tell)
    async with asyncio.timeout(5):
        await reloader.run()


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dra") as folder:  # socket paths end at 107
        yield Path(folder)


async def test_a_running_agent_goes_by_the_new_file(short: Path) -> None:
    for name in ("plugins_registry", "plugins"):
        (short / name).mkdir()
    path = short / "agent.yaml"
    quiet = "http: {listen: '127.0.0.1:0'}\nreport: {enabled: false}\n"
    path.write_text(HEAD + quiet)
    config = load(str(path), env={})
    assert config.http == Http(listen="127.0.0.1:0")
    identity = NodeIdentity(node_name="n", kubelet_root=str(short))
    app = App(config, identity, Source(str(path)))
    task = asyncio.get_running_loop().create_task(app.main())
    await until(lambda: app.registry.watching)
    path.write_text(HEAD + quiet + "mode: enforce\noutcome: {hold: 1m}\n")
    await until(lambda: app.ctx.settings.mode == "enforce")
    assert app.probes.state()["mode"] == "enforce"
    path.write_text("nonsense: [")
    await until(lambda: b'config_reloads_total{result="refused"} 1.0' in app.probes.metrics())
    assert b'config_reloads_total{result="accepted"} 1.0' in app.probes.metrics()
    assert app.ctx.settings.mode == "enforce"
    app._stop.set()
    assert await task == 0
