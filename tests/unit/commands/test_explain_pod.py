from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import names
from agent.cli import main
from agent.commands.explain_pod import explain_pod
from agent.core import annotation
from agent.core.classify import RuleSet
from agent.errors import UserError
from agent.settings.model import AgentConfig, Rules
from agent.settings.rulefiles import load_rules
from tests.support.kube_api import Fault, KubeApi, make_claim, make_pod, make_slice
from tests.support.kube_records import GPU, NET, PARAMETERS, claim, fact, outcome, record

KUBELET = (
    "Failed to prepare dynamic resources: prepare dynamic resources: "
    "NodePrepareResources failed for ResourceClaim p-0: "
)
UUID = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"


class Served:
    """An API server in a thread of its own: the command runs a loop itself."""

    def __init__(self, folder: Path) -> None:
        self.api = KubeApi()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.run(self.api.start)
        self.kubeconfig = self.api.kubeconfig(folder, token="t")

    def run(self, make: Callable[[], Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(10)

    def close(self) -> None:
        self.run(self.api.stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def pod(self, *devices: str, **changes: Any) -> dict[str, Any]:
        made = make_pod("p", "p-0")
        made["metadata"].update(changes)
        self.run(lambda: self.api.put_pod(made))
        self.api.put_claim(make_claim("p-0", "p", *(devices or ("gpu-0",))))
        return made

    def event(self, text: str, uid: str = "uid-p", at: str = "2026-11-30T10:00:00Z") -> None:
        self.api.old_events.append(
            {"involvedObject": {"uid": uid}, "message": text, "lastTimestamp": at}
        )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return load_rules(Rules())


def explain(served: Served, rules: RuleSet, target: str = "ns/p", **more: Any) -> str:
    more = {"config": AgentConfig(), **more}
    return explain_pod(target, kubeconfig=served.kubeconfig, env={}, rules=rules, **more)


def document(served: Served, rules: RuleSet) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(explain(served, rules, as_json=True))
    return found


def test_annotation_is_told_device_by_device(served: Served, rules: RuleSet) -> None:
    claims = [claim("p-0", "gpu-0", "gpu-1"), claim("n", "eth0", driver=NET)]
    made = record(claims, fact(outcome("p-0", verdict=PARAMETERS, attempts=2)))
    text = annotation.render(
        made, mode="enforce", outcome="FailPod", reason="failed: because", wall=1.0
    )
    served.pod(annotations={names.ANNOTATION_FAILURES: text})
    said = explain(served, rules)
    assert "gpu-0 of gpu.example.com (claim p-0): failed" in said
    assert "eth0 of net.example.com (claim n): not asked for yet" in said
    assert "the agent: FailPod: failed: because" in said
    assert "hint:         Correct the claim's parameters" in said
    found = document(served, rules)
    assert (found["kind"], found["source"]) == ("PodExplanation", "annotation")
    assert [d["state"] for d in found["devices"]] == ["failed", "failed", "pending"]
    assert not [s for s in served.api.seen if s.path.endswith("/events")], "it says it all"


def test_without_annotation_kubelets_latest_event_is_judged(served: Served, rules: RuleSet) -> None:
    served.pod("gpu-0", "gpu-9")
    served.event(KUBELET + "old news", at="2026-11-30T09:00:00Z")
    served.event(KUBELET + "prepare failed: requested device is not allocatable: gpu-9")
    served.event(KUBELET + "of another pod", uid="other", at="2027-01-01T00:00:00Z")
    found = document(served, rules)
    assert found["source"] == "event"
    assert "old news" not in found["event"]
    first, second = found["devices"]
    assert (first["device"], first["state"], first["atFault"]) == ("gpu-9", "failed", True)
    assert (first["verdict"], first["culprit"]) == ("permanent", "device")
    assert (second["device"], second["state"]) == ("gpu-0", "blocked")
    said = explain(served, rules)
    assert "gpu-9 of gpu.example.com (claim p-0): failed, at fault" in said
    assert "blocked: not at fault" in said
    assert f"matched:      {first['matched']}" in said
    assert "claim p-0, gpu.example.com: what the agent does in observe mode" in said
    assert "Does not ask again within this kubelet call" in said
    enforce = AgentConfig(mode="enforce")
    assert "in enforce mode\n  - Does not ask again.\n" in explain(served, rules, config=enforce)
    (plan,) = found["plans"]
    assert (plan["claim"], plan["driver"], plan["mode"]) == ("p-0", GPU, "observe")
    assert (plan["attempts"], plan["outcome"], plan["held"]) == ("none", "Report", False)


def test_the_agents_prefix_names_the_driver(served: Served, rules: RuleSet) -> None:
    served.pod("gpu-0", f"{NET}/eth0")
    served.event(KUBELET + f"dra-agent: {GPU}: ambiguous (unknown): strange")
    found = document(served, rules)
    states = {d["driver"]: (d["state"], d.get("cause")) for d in found["devices"]}
    assert states == {GPU: ("failed", "strange"), NET: ("pending", None)}
    assert found["notes"] == []
    served.api.old_events.clear()
    served.event(KUBELET + "strange")
    found = document(served, rules)
    assert [d["state"] for d in found["devices"]] == ["failed", "failed"]
    assert "does not say which driver" in found["notes"][0]


def test_identifiers_are_looked_up_in_the_slice(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "apiVersion: dra-agent.io/v1alpha1\nkind: FailureRules\nversion: 1\nrules:\n"
        "- {id: ours, text: 'card (?P<device>[^ ]{1,63}) is gone', verdict: permanent,"
        " culprit: device, hint: h, source: test, examples: ['card x is gone']}\n"
    )
    rules = load_rules(Rules(files=[str(file)]))
    gpu = {"name": "gpu-1", "attributes": {"uuid": {"string": UUID}}}
    served.api.slices.append(make_slice(GPU, {"name": "gpu-0"}, gpu))
    served.pod("gpu-0", "gpu-1")
    served.event(KUBELET + f"card {UUID} is gone")
    first, second = document(served, rules)["devices"]
    assert (first["device"], first.get("atFault"), second["state"]) == ("gpu-1", True, "blocked")
    served.api.faults.append(Fault("GET", "resourceslices", 403))
    found = document(served, rules)
    assert [d.get("atFault") for d in found["devices"]] == [None, None]
    assert "no right to list resourceslices" in found["notes"][0]


def test_nothing_on_record(served: Served, rules: RuleSet) -> None:
    served.pod()
    assert "no failure of its devices is on record" in explain(served, rules)
    served.api.faults.append(Fault("GET", "/events", 403))
    assert "note: kubelet's events cannot be read" in explain(served, rules)


def test_a_good_condition_makes_old_events_history(served: Served, rules: RuleSet) -> None:
    made = served.pod()
    made["status"]["conditions"].append(
        {"type": names.CONDITION_PREPARED, "status": "True", "reason": "Prepared", "message": "m"}
    )
    served.event(KUBELET + "old")
    found = document(served, rules)
    assert (found["source"], found["devices"]) == ("condition", [])
    assert found["condition"] == {"status": "True", "reason": "Prepared", "message": "m"}


def test_hostile_annotation(served: Served, rules: RuleSet) -> None:
    nasty = {"devices": [{"device": "\x1b[31mx\n", "state": [1], "cause": {"a": "\x1b[0m"}}, 7]}
    for text in (json.dumps(nasty), '{"devices": [{"sameAs": 5}]}', "[" * 50_000, "null"):
        served.pod(annotations={names.ANNOTATION_FAILURES: text})
        said = explain(served, rules)
        assert "\x1b" not in said


@pytest.mark.parametrize("target", ["p", "ns/", "/p", "a/b/c", ""])
def test_a_wrong_target_is_one_line(served: Served, rules: RuleSet, target: str) -> None:
    with pytest.raises(UserError, match="write NAMESPACE/NAME") as found:
        explain(served, rules, target)
    assert len(found.value.problems) == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (404, "pod ns/p: there is no such pod in this cluster"),
        (403, "the API server refuses: 403: told so"),
        (401, "does not accept the credentials"),
        (503, "gives no answer"),
    ],
)
def test_api_errors_are_one_line(served: Served, rules: RuleSet, code: int, words: str) -> None:
    served.api.faults.append(Fault("GET", "/pods/p", code))
    with pytest.raises(UserError, match=words) as found:
        explain(served, rules)
    assert "\n" not in str(found.value)


def test_the_command(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    served.pod()
    served.event(KUBELET + "error applying config: invalid sharing strategy")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{served.kubeconfig}")
    assert main(["explain", "--pod", "ns/p"]) == 0
    assert "culprit:      parameters" in capsys.readouterr().out
    assert main(["explain", "--pod", "ns/p", "--kubeconfig", str(tmp_path / "none")]) == 2
    assert "dra-agent: --kubeconfig: no such file" in capsys.readouterr().err
    assert main(["explain", "--pod", "ns/p", "a text"]) == 2
    assert main(["explain"]) == 2
