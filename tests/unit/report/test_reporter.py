from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent import names
from agent.core.model import DeviceState
from agent.kube import pods as pods_module
from agent.report import worker
from tests.support.kube_api import eventually, make_claim, make_pod, start_container
from tests.support.kube_bench import Bench, bench, config
from tests.support.kube_records import BUSY, GPU, NET, PARAMETERS, outcome

PREPARED, BLOCKED = DeviceState.PREPARED, DeviceState.BLOCKED


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BACKOFF", (0.02, 0.1))
    monkeypatch.setattr(pods_module, "BACKOFF", (0.02, 0.1))


@pytest.fixture
async def observe(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, config("observe")) as made:
        yield made


async def test_a_healthy_pod_costs_nothing(observe: Bench) -> None:
    await observe.pod("p")
    observe.submit(outcome("p-0", PREPARED))
    await observe.api.change_pod("p", start_container)
    await observe.quiet()
    assert observe.api.reads() == []
    assert observe.reporter.pending == 0


async def test_a_failure_is_told(observe: Bench) -> None:
    await observe.pod("p", "gpu-0", "gpu-1", owner="ReplicaSet")
    observe.submit(outcome("p-0", verdict=replace(PARAMETERS, device="gpu-1")))
    await eventually(lambda: observe.api.events)
    said = observe.prepared("p")
    assert (said["status"], said["reason"]) == ("False", "SomeDevicesFailed")
    assert "gpu-1 of gpu.example.com (claim p-0): invalid sharing strategy" in said["message"]
    assert "Pod not failed: its ReplicaSet would make" in said["message"]
    fault = observe.api.condition("p", names.CONDITION_INVALID_PARAMETERS)
    assert fault["status"] == "True"
    # A pod that is merely watched gets no annotation: kubelet would ask again at once.
    assert (
        "annotations" not in observe.api.pod("p")["metadata"]
        or not observe.api.pod("p")["metadata"]["annotations"]
    )
    assert observe.phase("p") == "Pending"
    assert observe.calls.pinned == set()
    assert len(observe.api.patches()) == 1


async def test_kubelets_repeats_are_not_written_again(observe: Bench) -> None:
    await observe.pod("p")
    done = None
    for _ in range(3):
        # The call is older than report.retryingAfter, but False is said already.
        observe.submit(outcome("p-0", verdict=BUSY), final=False, duration=9.0 * bool(done))
        await observe.quiet()
        done = observe.submit(outcome("p-0", verdict=BUSY, attempts=4))
        await eventually(lambda: observe.api.events)
    await observe.quiet()
    assert [
        s.body["status"]["conditions"][0]["reason"] for s in observe.api.patches() if s.body
    ] in (
        ["AllDevicesFailed"],
        ["Retrying", "AllDevicesFailed"],
    )
    assert len(observe.api.events) == 1


async def test_recovery_is_written_once_and_memory_is_freed(observe: Bench) -> None:
    await observe.pod("p")
    observe.submit(outcome("p-0", verdict=BUSY, attempts=4))
    await eventually(lambda: observe.prepared("p").get("status") == "False")
    observe.submit(outcome("p-0", PREPARED))
    await eventually(lambda: observe.prepared("p").get("status") == "True")
    assert observe.prepared("p")["message"] == (
        f"all devices prepared after 5 attempts (trace {'ab' * 16});"
        " first error: invalid sharing strategy"
    )
    await observe.api.change_pod("p", start_container)
    await eventually(lambda: not len(observe.reporter._book))
    await observe.quiet()
    assert len(observe.api.patches()) == 2
    assert observe.reporter.pending == 0


async def test_trouble_within_one_call_is_one_write(observe: Bench) -> None:
    await observe.pod("p")
    observe.submit(outcome("p-0", verdict=BUSY, attempts=1), final=False)
    observe.submit(outcome("p-0", PREPARED, attempts=2))
    await eventually(lambda: observe.prepared("p"))
    await observe.quiet()
    assert observe.prepared("p")["status"] == "True"
    assert len(observe.api.patches()) == 1


async def test_retrying_is_told_only_after_a_while(observe: Bench) -> None:
    await observe.pod("p")
    made = observe.submit(outcome("p-0", verdict=BUSY), final=False)
    await eventually(lambda: observe.prepared("p"))
    assert observe.prepared("p")["reason"] == "Retrying"
    patch = observe.api.patches()[0]
    assert patch.at - made.replied_at >= 0.09
    observe.submit(outcome("p-0", verdict=BUSY, attempts=2, error="other"), final=False)
    await observe.quiet()
    assert len(observe.api.patches()) == 1
    assert observe.api.events == []
    observe.submit(outcome("p-0", PREPARED, attempts=3))
    await eventually(lambda: observe.prepared("p")["status"] == "True")


async def test_true_waits_for_every_served_driver(observe: Bench) -> None:
    observe.calls.served = {GPU, NET}
    await observe.pod("p", "gpu-0", f"{NET}/eth0")
    observe.submit(outcome("p-0", verdict=BUSY))
    await eventually(lambda: observe.prepared("p"))
    observe.submit(outcome("p-0", PREPARED))
    await observe.quiet()
    assert observe.prepared("p")["status"] == "False"
    observe.submit(outcome("p-0", PREPARED), driver=NET)
    await eventually(lambda: observe.prepared("p")["status"] == "True")


async def test_a_pod_that_runs_all_the_same(observe: Bench) -> None:
    await observe.pod("p")
    observe.submit(outcome("p-0", verdict=BUSY))
    await eventually(lambda: observe.prepared("p"))
    await observe.api.change_pod("p", start_container)
    await eventually(lambda: observe.prepared("p")["status"] == "True")
    assert observe.prepared("p")["message"] == "prepared, not seen by the agent"
    await eventually(lambda: not observe.reporter.pending)


async def test_a_pod_that_ran_before_we_came_back(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe")) as first:
        await first.pod("p")
        first.submit(outcome("p-0"))
        await eventually(lambda: first.prepared("p"))
        await first.tasks.close()
        await first.api.change_pod("p", start_container)
        second = Bench(first.api, first.kube, config("observe"))
        await second.run()
        await eventually(lambda: first.prepared("p")["status"] == "True")
        fault = first.api.condition("p", names.CONDITION_INVALID_PARAMETERS)
        assert fault["status"] == "False"
        await second.tasks.close()


async def test_a_good_prepare_after_our_restart(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe")) as first:
        await first.pod("p")
        first.submit(outcome("p-0"))
        await eventually(lambda: first.prepared("p"))
        await first.tasks.close()
        second = Bench(first.api, first.kube, config("observe"))
        await second.run()
        second.submit(outcome("p-0", PREPARED))
        await eventually(lambda: first.prepared("p")["status"] == "True")
        assert first.prepared("p")["message"] == "all devices prepared"
        await second.tasks.close()


async def test_a_call_before_the_watch_knows_the_pod(observe: Bench) -> None:
    observe.submit(outcome("p-0"))
    await observe.quiet()
    await observe.pod("p")
    await eventually(lambda: observe.prepared("p"))


async def test_a_pod_that_had_trouble_and_runs_before_the_watch_knows_it(observe: Bench) -> None:
    observe.submit(outcome("p-0", verdict=BUSY, attempts=1), final=False)
    observe.submit(outcome("p-0", PREPARED, attempts=2))
    await observe.quiet()
    observe.api.put_claim(make_claim("p-0", "p", "gpu-0"))
    running = make_pod("p", "p-0")
    start_container(running)
    await observe.api.put_pod(running)
    await eventually(lambda: observe.prepared("p"))
    assert observe.prepared("p")["status"] == "True"
    await observe.quiet()
    assert len(observe.api.patches()) == 1
    assert len(observe.reporter._book) == 0


async def test_only_the_pod_with_all_claims_of_the_call_is_meant(observe: Bench) -> None:
    await observe.pod("p", claims=2)
    await observe.pod("q")
    shared = observe.api.pod("q")
    shared["spec"]["resourceClaims"] = [{"name": "x", "resourceClaimName": "p-0"}]
    await observe.api.put_pod(shared)
    await eventually(lambda: len(observe.pods.of_claim("ns", "p-0")) == 2)
    observe.submit(outcome("p-0"), outcome("p-1", BLOCKED, attempts=0))
    await eventually(lambda: observe.prepared("p"))
    await observe.quiet()
    assert observe.prepared("q") == {}


async def test_outage_writes_arrive_afterwards_newest_wins(observe: Bench) -> None:
    await observe.pod("p")
    await observe.pod("q")
    await observe.api.stop()
    observe.submit(outcome("p-0", verdict=BUSY))
    observe.submit(outcome("q-0", verdict=BUSY))
    await eventually(lambda: ("any", "unavailable") in observe.told)
    observe.submit(outcome("p-0", PREPARED))
    await observe.api.start()
    await eventually(lambda: observe.prepared("p") and observe.prepared("q"))
    assert observe.prepared("p")["status"] == "True"
    assert observe.prepared("q")["status"] == "False"


async def test_a_deleted_pod_is_forgotten(observe: Bench) -> None:
    await observe.pod("p")
    observe.submit(outcome("p-0"))
    await eventually(lambda: observe.prepared("p"))
    await observe.api.delete_pod("p")
    await eventually(lambda: not observe.reporter.pending)
    assert len(observe.reporter._book) == 0


async def test_refused_writes_are_said_once_and_do_not_stop_others(
    observe: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.support.kube_api import Fault

    observe.api.faults.append(Fault("PATCH", "/pods/p/", 403, times=2))
    await observe.pod("p")
    await observe.pod("q")
    for _ in range(2):
        observe.submit(outcome("p-0"))
        await observe.quiet()
    observe.submit(outcome("q-0"))
    await eventually(lambda: observe.prepared("q"))
    assert caplog.text.count("refuses our writes") == 1


async def test_held_verdict_is_annotated_once_and_again_when_a_state_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent.report import writer

    monkeypatch.setattr(writer, "ANNOTATION_PAUSE", 0.1)
    async with bench(tmp_path, config("enforce")) as made:
        made.calls.served = {GPU, NET}
        made.calls.held = {(GPU, "uid-p-0")}
        await made.pod("p", "gpu-0", f"{NET}/eth0", owner="ReplicaSet")

        def written() -> int:
            return sum("annotations" in s.body["metadata"] for s in made.api.patches() if s.body)

        made.submit(outcome("p-0"))
        await eventually(lambda: written() == 1)
        assert made.prepared("p")["reason"] == "HeldBack"
        for attempts in (2, 3):
            made.submit(outcome("p-0", attempts=attempts, held=True))
        await made.quiet()
        assert written() == 1
        made.submit(outcome("p-0", PREPARED), driver=NET)
        await eventually(lambda: written() == 2)
        text = made.api.pod("p")["metadata"]["annotations"][names.ANNOTATION_FAILURES]
        document = json.loads(text)
        assert document["outcome"] == "Report"
        assert {d["device"]: d["state"] for d in document["devices"]} == {
            "gpu-0": "failed",
            "eth0": "prepared",
        }


async def test_no_events_where_they_are_off(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe", report={"events": False})) as made:
        await made.pod("p")
        made.submit(outcome("p-0"))
        await eventually(lambda: made.prepared("p"))
        await made.quiet()
        assert made.api.events == []


async def test_a_refused_event_is_only_logged(observe: Bench) -> None:
    from tests.support.kube_api import Fault

    observe.api.faults.append(Fault("POST", "/events", 403))
    await observe.pod("p")
    observe.submit(outcome("p-0"))
    await eventually(lambda: ("event", "refused") in observe.told)
    assert observe.prepared("p")["status"] == "False"


async def test_queue_drops_the_oldest_and_counts(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe", report={"queue": 2})) as made:
        await made.pod("p")
        for error in ("one", "two", "three"):
            made.submit(outcome("p-0", error=error, verdict=BUSY))
        assert (made.reporter.dropped, made.reporter.queue_length) == (1, 2)
        await eventually(lambda: made.prepared("p"))
        assert "three" in made.prepared("p")["message"]
        assert ("fact", "dropped") in made.told


async def test_state_lists_every_device(observe: Bench) -> None:
    await observe.pod("p", "gpu-0", "gpu-1")
    observe.submit(outcome("p-0"))
    await eventually(lambda: observe.prepared("p"))
    (entry,) = observe.reporter.state()
    assert (entry["namespace"], entry["name"]) == ("ns", "p")
    assert [d["state"] for d in entry["devices"]] == ["failed", "failed"]


async def test_unprepare_forgets_the_claim(observe: Bench) -> None:
    await observe.pod("p")
    observe.submit(outcome("p-0", PREPARED))
    observe.submit(outcome("p-0", PREPARED), operation="unprepare")
    await eventually(lambda: not observe.reporter.queue_length)
    await asyncio.sleep(0)
    assert len(observe.reporter._book) == 0
