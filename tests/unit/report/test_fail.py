from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import names
from agent.kube import pods as pods_module
from agent.report import fail, worker
from tests.support.kube_api import Fault, Seen, eventually, start_container
from tests.support.kube_bench import Bench, bench, config
from tests.support.kube_records import GPU, PARAMETERS, outcome


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BACKOFF", (0.02, 0.1))
    monkeypatch.setattr(pods_module, "BACKOFF", (0.02, 0.1))


@pytest.fixture
async def enforce(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, config("enforce")) as made:
        made.calls.held = {(GPU, "uid-p-0")}
        yield made


def fails(made: Bench) -> list[Seen]:
    return [s for s in made.api.patches() if s.body and "phase" in s.body["status"]]


@pytest.mark.parametrize("owner", ["", "Job"])
async def test_one_patch_after_the_delay(enforce: Bench, owner: str) -> None:
    await enforce.pod("p", owner=owner)
    made = enforce.submit(outcome("p-0"))
    await eventually(lambda: enforce.phase("p") == "Failed")
    await enforce.quiet()
    (patch,) = enforce.api.patches()
    assert patch.at - made.replied_at >= 0.049
    assert patch.body is not None
    assert patch.body["metadata"]["uid"] == "uid-p"
    assert patch.body["metadata"]["resourceVersion"]
    document = json.loads(patch.body["metadata"]["annotations"][names.ANNOTATION_FAILURES])
    assert (document["outcome"], document["mode"]) == ("FailPod", "enforce")
    status = enforce.api.pod("p")["status"]
    assert status["reason"] == "DevicePrepareFailed"
    assert "invalid sharing strategy" in status["message"]
    assert enforce.prepared("p")["reason"] == "AllDevicesFailed"
    assert enforce.api.condition("p", names.CONDITION_INVALID_PARAMETERS)["status"] == "True"
    assert enforce.calls.pinned == {(GPU, "uid-p-0")}
    (event,) = enforce.api.events
    assert event["action"] == "FailPod"
    assert enforce.reporter.pending == 0


async def test_explicit_error_acts_in_observe(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe")) as made:
        await made.pod("p")
        made.submit(outcome("p-0", verdict=replace(PARAMETERS, explicit=True)))
        await eventually(lambda: made.phase("p") == "Failed")


async def test_never_while_a_prepare_is_in_flight(enforce: Bench) -> None:
    enforce.calls.busy = {"uid-p-0"}
    await enforce.pod("p")
    enforce.submit(outcome("p-0"))
    await eventually(lambda: enforce.calls.pinned)
    await asyncio.sleep(0.2)
    assert fails(enforce) == []
    enforce.calls.busy = set()
    await eventually(lambda: enforce.phase("p") == "Failed")


async def test_a_later_answer_starts_the_delay_anew(
    enforce: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enforce.pod("p")
    enforce.submit(outcome("p-0"))
    later = asyncio.get_running_loop().time() + 0.3
    enforce.submit(outcome("p-0", held=True), replied_at=later)
    await eventually(lambda: enforce.phase("p") == "Failed")
    assert fails(enforce)[0].at >= later + 0.049


async def test_everything_is_read_again_before_the_patch(enforce: Bench) -> None:
    """Claims are not watched: only the fresh reads can know."""
    enforce.calls.busy = {"uid-p-0"}
    await enforce.pod("p")
    enforce.submit(outcome("p-0"))
    await eventually(lambda: enforce.calls.pinned)
    claim = enforce.api.claims["ns", "p-0"]
    claim["status"]["reservedFor"].append({"resource": "pods", "name": "q", "uid": "q"})
    enforce.calls.busy = set()
    await eventually(lambda: enforce.prepared("p"))
    await enforce.quiet()
    assert fails(enforce) == []
    assert "Pod not failed: claim p-0 is not reserved for" in enforce.prepared("p")["message"]
    assert enforce.prepared("p")["reason"] == "HeldBack"


async def test_pod_of_another_uid_is_left_alone(
    enforce: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enforce.pod("p")
    real = enforce.kube.get_pod

    async def renewed(namespace: str, name: str) -> dict[str, Any]:
        found = await real(namespace, name)
        return {**found, "metadata": {**found["metadata"], "uid": "other"}}

    monkeypatch.setattr(enforce.kube, "get_pod", renewed)
    enforce.submit(outcome("p-0"))
    await eventually(lambda: not enforce.reporter.pending)
    assert enforce.api.patches() == []


async def test_conflicts_are_checked_again(enforce: Bench) -> None:
    enforce.api.faults.append(Fault("PATCH", "/pods/p/", 409, times=3))
    await enforce.pod("p")
    enforce.submit(outcome("p-0"))
    await eventually(lambda: enforce.phase("p") == "Failed")
    assert len(fails(enforce)) == 4
    reads = [s for s in enforce.api.seen if s.method == "GET" and s.path.endswith("/pods/p")]
    assert len(reads) == 4


async def test_the_fourth_conflict_is_a_report(enforce: Bench) -> None:
    enforce.api.faults.append(Fault("PATCH", "/pods/p/", 409, times=4))
    await enforce.pod("p")
    enforce.submit(outcome("p-0"))
    await eventually(lambda: enforce.prepared("p"))
    await enforce.quiet()
    assert enforce.phase("p") == "Pending"
    assert "the pod changed each time" in enforce.prepared("p")["message"]
    assert len(fails(enforce)) == 4


@pytest.mark.parametrize("code", [403, 422])
async def test_a_refusal_is_a_report_with_the_reason(enforce: Bench, code: int) -> None:
    message = "ValidatingAdmissionPolicy 'x' denied request: not yours"
    enforce.api.faults.append(Fault("PATCH", "/pods/p/", code, message))
    await enforce.pod("p")
    enforce.submit(outcome("p-0"))
    await eventually(lambda: enforce.prepared("p"))
    await enforce.quiet()
    assert enforce.phase("p") == "Pending"
    assert len(fails(enforce)) == 1
    assert "the API server refused it" in enforce.prepared("p")["message"]
    assert "not yours" in enforce.prepared("p")["message"]
    assert not enforce.calls.pinned, "the clock ends the verdict again"


async def test_an_outage_delays_the_patch(enforce: Bench) -> None:
    await enforce.pod("p")
    await enforce.api.stop()
    enforce.submit(outcome("p-0"))
    await eventually(lambda: ("any", "unavailable") in enforce.told)
    await enforce.api.start()
    await eventually(lambda: enforce.phase("p") == "Failed")


async def test_cancel_before_it_is_sent(enforce: Bench) -> None:
    enforce.calls.busy = {"uid-p-0"}
    await enforce.pod("p")
    enforce.submit(outcome("p-0"))
    await eventually(lambda: enforce.calls.pinned)
    enforce.reporter.cancel("other.example.com")
    enforce.reporter.cancel(GPU)
    enforce.calls.busy = set()
    await enforce.quiet()
    assert fails(enforce) == []
    # The next call decides afresh.
    enforce.submit(outcome("p-0"))
    await eventually(lambda: enforce.phase("p") == "Failed")


async def test_cancel_between_check_and_patch(
    enforce: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enforce.pod("p")
    real = enforce.kube.get_pod

    async def slow(namespace: str, name: str) -> dict[str, Any]:
        found = await real(namespace, name)
        enforce.reporter.cancel(GPU)
        return found

    monkeypatch.setattr(enforce.kube, "get_pod", slow)
    enforce.submit(outcome("p-0"))
    await enforce.quiet()
    await enforce.quiet()
    assert fails(enforce) == []


async def test_a_pod_being_deleted_is_not_failed(enforce: Bench) -> None:
    enforce.calls.busy = {"uid-p-0"}
    await enforce.pod("p")
    enforce.submit(outcome("p-0"))
    await eventually(lambda: enforce.calls.pinned)
    await enforce.api.change_pod("p", lambda p: p["metadata"].update(deletionTimestamp="t"))
    await eventually(lambda: not enforce.reporter.pending)
    enforce.calls.busy = set()
    await enforce.quiet()
    assert enforce.api.patches() == []


async def test_a_pod_that_starts_meanwhile_is_not_failed(enforce: Bench) -> None:
    enforce.calls.busy = {"uid-p-0"}
    await enforce.pod("p")
    enforce.submit(outcome("p-0"))
    await eventually(lambda: enforce.calls.pinned)
    await enforce.api.change_pod("p", start_container)
    enforce.calls.busy = set()
    await eventually(lambda: not enforce.reporter.pending)
    assert fails(enforce) == []


async def test_two_pods_of_one_owner_keep_their_distance(enforce: Bench) -> None:
    for name in ("p", "q"):
        await enforce.pod(name, owner="Job")
        pod = enforce.api.pod(name)
        pod["metadata"]["ownerReferences"][0]["uid"] = "same"
        await enforce.api.put_pod(pod)
        await eventually(
            lambda name=name: enforce.pods.get(f"uid-{name}").owner.uid == "same"  # type: ignore[misc,union-attr]
        )
    enforce.submit(outcome("p-0"))
    enforce.submit(outcome("q-0"))
    await eventually(lambda: {enforce.phase(n) for n in "pq"} == {"Failed"})
    first, second = fails(enforce)
    assert second.at - first.at >= 0.28


async def test_a_long_wait_is_told(enforce: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fail, "SOON", 0.1)
    await enforce.pod("p", owner="Job")
    pod = enforce.pods.get("uid-p")
    assert pod is not None
    now = asyncio.get_running_loop().time()
    enforce.reporter._parts.rules.set_owner_failed(pod, now + 0.5)
    enforce.submit(outcome("p-0"))
    await eventually(lambda: enforce.prepared("p"))
    assert "not failed yet: another pod of its owner" in enforce.prepared("p")["message"]
    await eventually(lambda: enforce.phase("p") == "Failed")


async def test_unknown_kubelet_is_a_report(tmp_path: Path) -> None:
    async with bench(tmp_path, config("enforce")) as made:
        made.api.nodes.clear()
        await made.pod("p")
        made.submit(outcome("p-0"))
        await eventually(lambda: made.prepared("p"))
        assert "unknown version" in made.prepared("p")["message"]
