from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent import names
from agent.core.model import CallFact, DeviceState
from agent.report import nudge
from agent.report.nudge import Nudger
from agent.settings.model import Duration, Nudge
from tests.support.kube_api import Fault, eventually, start_container
from tests.support.kube_bench import Bench, bench, config
from tests.support.kube_records import GPU, NET, fact, outcome

QUICK = Nudge(min_between=Duration(0.3))


class Nudged:
    def __init__(self, made: Bench, settings: Nudge = QUICK, *, attach: bool = True) -> None:
        self.bench = made
        self.said: list[tuple[str, str, str]] = []
        self.nudger = Nudger(settings, made.calls, on_nudge=lambda *said: self.said.append(said))
        if attach:
            self.nudger.attach(made.kube, made.pods)

    def note(self, pod: str) -> str:
        meta = self.bench.api.pod(pod)["metadata"]
        return str(meta.get("annotations", {}).get(names.ANNOTATION_NUDGE, ""))

    def failed(self, claim: str, error: str = "device busy", *, code: int = 0) -> None:
        self.nudger.submit(replace(fact(outcome(claim, error=error)), code=code))

    def prepared(self, claim: str, *devices: str) -> None:
        good = outcome(claim, DeviceState.PREPARED)
        self.nudger.submit(fact(replace(good, devices=devices)))

    def unprepared(self, claim: str, *, ok: bool = True) -> None:
        state = DeviceState.PREPARED if ok else DeviceState.FAILED
        self.nudger.submit(fact(outcome(claim, state), operation="unprepare"))

    async def idle(self) -> None:
        await eventually(lambda: not self.nudger.busy)


@pytest.fixture
async def nudged(tmp_path: Path) -> AsyncIterator[Nudged]:
    async with bench(tmp_path, config("observe")) as made:
        found = Nudged(made)
        yield found
        await found.nudger.close()


async def test_a_pod_that_met_no_driver_is_nudged_once(nudged: Nudged) -> None:
    await nudged.bench.pod("p")
    nudged.nudger.ready(GPU, "driver-registered")
    await eventually(lambda: nudged.note("p").startswith("driver-registered@"))
    await nudged.idle()
    assert nudged.said == [(GPU, "driver-registered", "ok")]
    (patch,) = nudged.bench.api.patches()
    assert patch.path.endswith("/pods/p/status")
    assert patch.body == {
        "metadata": {
            "uid": "uid-p",
            "annotations": {names.ANNOTATION_NUDGE: nudged.note("p")},
        }
    }


async def test_the_first_time_and_every_other_time_have_their_causes(nudged: Nudged) -> None:
    await nudged.bench.pod("p")
    old = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    await nudged.bench.api.change_pod("p", lambda pod: pod["metadata"].update(old))
    await eventually(lambda: nudged.bench.pods.get("uid-p").created)  # type: ignore[union-attr]
    nudged.nudger.ready(GPU, "start")
    await eventually(lambda: nudged.note("p").startswith("agent-started@"))
    nudged.nudger.ready(GPU, "driver-back")
    await eventually(lambda: nudged.note("p").startswith("driver-back@"))
    assert [cause for _, cause, _ in nudged.said] == ["agent-started", "driver-back"]


async def test_other_pods_are_left_alone(nudged: Nudged) -> None:
    made = nudged.bench
    for name in ("runs", "held", "busy", "done", "foreign"):
        await made.pod(name, f"{NET}/nic" if name == "foreign" else "gpu-0")
    await made.api.change_pod("runs", start_container)
    await eventually(lambda: made.pods.get("uid-runs").started)  # type: ignore[union-attr]
    for name in ("held-0", "busy-0"):
        nudged.failed(name)
    nudged.prepared("done-0", "gpu-0")
    made.calls.held.add((GPU, "uid-held-0"))
    made.calls.busy.add("uid-busy-0")
    nudged.nudger.ready(GPU, "driver-registered")
    await nudged.idle()
    assert made.api.patches() == []
    assert nudged.said == []


async def test_the_claim_that_had_the_device_is_gone(nudged: Nudged) -> None:
    await nudged.bench.pod("p", "gpu-0")
    await nudged.bench.pod("q", "gpu-1")
    nudged.prepared("x", "gpu-0")
    nudged.failed("p-0")
    nudged.failed("q-0", "gpu-1 is in use by claim y")
    nudged.unprepared("x", ok=False)
    await nudged.idle()
    assert nudged.said == []
    nudged.unprepared("x")
    await eventually(lambda: nudged.note("p").startswith("claim-unprepared@"))
    await nudged.idle()
    assert nudged.note("q") == ""


@pytest.mark.parametrize("how", ["another call", "connected"])
async def test_a_fault_of_the_connection_has_ended(nudged: Nudged, how: str) -> None:
    await nudged.bench.pod("p")
    await nudged.bench.pod("q", "gpu-1")
    nudged.failed("p-0", "connection lost", code=14)
    nudged.failed("q-0", "no such mode")
    if how == "connected":
        nudged.nudger.driver_up(GPU, False)
        nudged.nudger.driver_up(GPU, True)
    else:
        nudged.prepared("z", "gpu-2")
    await eventually(lambda: nudged.note("p").startswith("fault-ended@"))
    await nudged.idle()
    assert nudged.note("q") == ""


async def test_no_fault_no_event(nudged: Nudged) -> None:
    await nudged.bench.pod("p")
    nudged.nudger.driver_up(GPU, True)
    nudged.prepared("z")
    nudged.unprepared("z")
    assert not nudged.nudger.busy


async def test_a_second_cause_waits_its_turn_and_looks_again(nudged: Nudged) -> None:
    await nudged.bench.pod("p")
    nudged.nudger.ready(GPU, "driver-registered")
    await eventually(lambda: nudged.said)
    nudged.nudger.ready(GPU, "driver-back")
    nudged.prepared("p-0", "gpu-0")  # meanwhile kubelet asked, and it worked
    await nudged.idle()
    assert len(nudged.said) == 1


async def test_two_causes_at_once_keep_to_the_pace(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe")) as made:
        found = Nudged(made, Nudge(min_between=Duration(600.0)))
        await made.pod("p")
        found.failed("p-0", code=14)
        found.nudger.driver_up(GPU, True)
        found.nudger.ready(GPU, "driver-registered")
        await eventually(lambda: found.said)
        await made.quiet()
        assert len(found.said) == 1
        await found.nudger.close()


async def test_a_flapping_driver_leaves_one_task_for_a_pod(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe")) as made:
        found = Nudged(made, Nudge(min_between=Duration(600.0)))
        await made.pod("p")
        for _ in range(20):
            found.nudger.ready(GPU, "driver-back")
            await eventually(lambda: len(found.nudger._tasks) <= 2)
        assert found.nudger.busy
        await found.nudger.close()


async def test_what_happened_before_the_api_was_there_is_looked_at_then(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe")) as made:
        found = Nudged(made, attach=False)
        await made.pod("p")
        found.nudger.ready(GPU, "driver-registered")
        assert not found.nudger.busy
        found.nudger.attach(made.kube, made.pods)
        await eventually(lambda: found.note("p"))
        await found.nudger.close()


async def test_switched_off(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe")) as made:
        found = Nudged(made, msgspec.structs.replace(QUICK, enabled=False))
        await made.pod("p")
        found.nudger.ready(GPU, "driver-registered")
        assert not found.nudger.busy


@pytest.mark.parametrize(
    ("code", "times", "result"),
    [
        (503, 1, "ok"),
        (409, 1, "ok"),
        (503, 9, "unavailable"),
        (403, 1, "refused"),
        (404, 1, "gone"),
    ],
)
async def test_a_server_that_refuses(
    nudged: Nudged, monkeypatch: pytest.MonkeyPatch, code: int, times: int, result: str
) -> None:
    monkeypatch.setattr(nudge, "BACKOFF", (0.01, 0.01))
    await nudged.bench.pod("p")
    nudged.bench.api.faults.append(Fault("PATCH", "/pods/p/status", code, times=times))
    nudged.nudger.ready(GPU, "driver-registered")
    await eventually(lambda: nudged.said)
    assert nudged.said == [(GPU, "driver-registered", result)]


async def test_facts_go_to_both(nudged: Nudged) -> None:
    seen: list[CallFact] = []

    class Other:
        def submit(self, fact: CallFact) -> None:
            seen.append(fact)

    sink: Any = nudged.nudger.beside(Other())
    sink.submit(fact(outcome("p-0")))
    assert len(seen) == 1
