from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent import names
from agent.core.context import InFlight
from agent.core.model import Culprit, Kind, Verdict, WaitsFor
from agent.report import surroundings
from tests.support.kube_api import Fault, eventually, make_slice
from tests.support.kube_bench import Bench, bench, config
from tests.support.kube_records import GPU, PARAMETERS, outcome, ref

UUID = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
TAKEN = "requested device gpu-0 is already allocated to different claim u2"
LOCKED = "error acquiring cplock: timeout acquiring lock (/a/cp.lock)"
WAITS = Verdict(Kind.TRANSIENT, Culprit.CLAIM, "claim-device-taken", device="gpu-0")
LOCK = Verdict(Kind.TRANSIENT, Culprit.DRIVER, "driver-lock-busy")
GONE = Verdict(Kind.PERMANENT, Culprit.DEVICE, "gone", device=UUID, span=(5, 9))


@pytest.fixture
async def observe(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, config("observe")) as made:
        yield made


def reads(made: Bench, part: str) -> int:
    return len([path for path in made.api.reads() if part in path])


def devices(made: Bench, pod: str = "p") -> list[dict[str, Any]]:
    return [d for each in made.reporter.state() if each["name"] == pod for d in each["devices"]]


async def test_the_claim_that_has_the_device_is_named(observe: Bench) -> None:
    await observe.pod("old", "gpu-0")
    await observe.pod("other", "gpu-1")
    await observe.pod("p", "gpu-0")
    observe.calls.running = [
        InFlight(ref("other-0"), "prepare", 40.0),
        InFlight(ref("old-0"), "unprepare", 12.0),
        InFlight(ref("p-0"), "prepare", 1.0),
    ]
    observe.submit(outcome("p-0", verdict=WAITS, error=TAKEN))
    await eventually(lambda: observe.prepared("p"))
    message = observe.prepared("p")["message"]
    assert "Blocked by claim old-0 (pod old), unprepare in flight for 12 s." in message
    (device,) = devices(observe)
    assert device["blockedBy"] == {
        "claim": "old-0", "namespace": "ns", "pod": "old", "operation": "unprepare", "seconds": 12,
    }  # fmt: skip
    assert device["alsoHeldBy"] == ["ns/old-0"]
    assert observe.calls.waiting == {(GPU, ref("p-0").uid, ref("old-0").uid)}


async def test_a_rule_that_knows_what_is_waited_for_is_enough(observe: Bench) -> None:
    await observe.pod("old", "gpu-0")
    await observe.pod("p", "gpu-0")
    waits = replace(WAITS, waits_for=WaitsFor.DEVICE)
    observe.submit(outcome("p-0", verdict=waits, error="it has no hands free"))
    await eventually(lambda: observe.prepared("p"))
    assert "Blocked by claim old-0 (pod old)" in observe.prepared("p")["message"]


async def test_a_holder_without_a_call_is_named_too(observe: Bench) -> None:
    await observe.pod("old", "gpu-0")
    await observe.pod("p", "gpu-0")
    observe.submit(outcome("p-0", verdict=WAITS, error=TAKEN))
    await eventually(lambda: observe.prepared("p"))
    message = observe.prepared("p")["message"]
    assert "Blocked by claim old-0 (pod old), which holds the device." in message


async def test_nobody_is_accused_without_an_allocation(observe: Bench) -> None:
    await observe.pod("other", "gpu-1")
    await observe.pod("p", "gpu-0")
    observe.calls.running = [InFlight(ref("other-0"), "prepare", 40.0)]
    observe.submit(outcome("p-0", verdict=WAITS, error=TAKEN))
    await eventually(lambda: observe.prepared("p"))
    assert "Blocked by claim" not in observe.prepared("p")["message"]


async def test_a_lock_is_held_by_the_oldest_call_of_the_driver(observe: Bench) -> None:
    await observe.pod("old", "gpu-1")
    await observe.pod("p", "gpu-0")
    observe.calls.running = [InFlight(ref("old-0"), "prepare", 31.0)]
    observe.submit(outcome("p-0", verdict=LOCK, error=LOCKED))
    await eventually(lambda: observe.prepared("p"))
    message = observe.prepared("p")["message"]
    assert "Blocked by claim old-0 (pod old), prepare in flight for 31 s." in message
    assert reads(observe, "resourceclaims/old-0") == 0, "known from memory"


async def test_identifiers_and_taints_come_from_the_slice(observe: Bench) -> None:
    observe.api.slices.append(
        make_slice(
            GPU,
            {"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-else"}}},
            {
                "name": "gpu-1",
                "attributes": {"uuid": {"string": UUID.lower()}},
                "taints": [{"key": "x", "value": "y", "effect": "NoSchedule"}],
            },
        )
    )
    await observe.pod("p", "gpu-0", "gpu-1")
    observe.submit(outcome("p-0", verdict=GONE, error=f"lost {UUID}"))
    await eventually(lambda: observe.prepared("p"))
    message = observe.prepared("p")["message"]
    assert message.startswith("1 of 2 devices could not be prepared. gpu-1 of")
    assert "Blocked by it: gpu-0." in message
    assert "Tainted: x=y:NoSchedule." in message
    first, second = devices(observe)
    assert (first["device"], first["atFault"], first["matchedAt"]) == ("gpu-1", True, [5, 9])
    assert first["taints"] == ["x=y:NoSchedule"]
    assert (second["device"], second["state"]) == ("gpu-0", "blocked")
    assert "atFault" not in second


async def test_an_admins_taints_are_told_too(observe: Bench) -> None:
    observe.api.taint_rules = [
        {
            "spec": {
                "deviceSelector": {"driver": GPU, "device": "gpu-0"},
                "taint": {"key": "admin", "effect": "NoExecute"},
            }
        },
        {"spec": {"taint": {"key": "selects-nothing", "effect": "None"}}},
    ]
    observe.api.slices.append(make_slice(GPU, {"name": "gpu-0"}))
    await observe.pod("p", "gpu-0")
    observe.submit(outcome("p-0", verdict=GONE, error=f"lost {UUID}"))
    await eventually(lambda: observe.prepared("p"))
    assert "Tainted: admin:NoExecute." in observe.prepared("p")["message"]
    await observe.quiet()
    assert reads(observe, "devicetaintrules") == 1


@pytest.mark.parametrize("code", [403, 404, 500])
async def test_without_taint_rules_all_else_is_told(
    observe: Bench, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    observe.api.faults.append(Fault("GET", "devicetaintrules", code, times=99))
    await observe.pod("p", "gpu-0")
    observe.submit(outcome("p-0", verdict=GONE, error=f"lost {UUID}"))
    await eventually(lambda: observe.prepared("p"))
    await observe.quiet()
    said = [r for r in caplog.records if "devicetaintrules cannot be read" in r.message]
    assert bool(said) is (code != 404), "an API before 1.37 has none: nothing to say"


@pytest.mark.parametrize("what", ["devicetaintrules", "resourceslices"])
async def test_a_read_that_failed_in_passing_is_made_again(observe: Bench, what: str) -> None:
    observe.api.faults.append(Fault("GET", what, 500, times=1))
    for pod in ("p", "q"):
        await observe.pod(pod, "gpu-0")
        observe.submit(outcome(f"{pod}-0", verdict=GONE, error=f"lost {UUID}"))
        await eventually(partial(observe.prepared, pod))
        await observe.quiet()
    assert reads(observe, what) == 2


@pytest.mark.parametrize("code", [403, 404, 500])
async def test_without_slices_nobody_is_blamed_and_all_is_told(observe: Bench, code: int) -> None:
    observe.api.faults.append(Fault("GET", "resourceslices", code, times=99))
    await observe.pod("p", "gpu-0", "gpu-1")
    observe.submit(outcome("p-0", verdict=GONE, error=f"lost {UUID}"))
    await eventually(lambda: observe.prepared("p"))
    await observe.quiet()
    assert "2 of 2 devices could not be prepared" in observe.prepared("p")["message"]
    assert observe.api.condition("p", names.CONDITION_DEVICE_FAULT)["status"] == "True"
    assert not [d for d in devices(observe) if "atFault" in d]


async def test_parameters_cost_no_further_reads(observe: Bench) -> None:
    await observe.pod("q", "gpu-0")
    await observe.pod("p", "gpu-0")
    observe.submit(outcome("p-0", verdict=PARAMETERS))
    await eventually(lambda: observe.prepared("p"))
    await observe.quiet()
    assert reads(observe, "resourceslices") == reads(observe, "resourceclaims/q-0") == 0


async def test_reads_are_bounded_and_shared(
    observe: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surroundings, "READS", 3)
    for i in range(6):
        await observe.pod(f"o{i}", f"gpu-{i}")
    for name in ("p", "q"):
        await observe.pod(name, "gpu-0")
    observe.submit(outcome("p-0", verdict=WAITS, error=TAKEN))
    await eventually(lambda: observe.prepared("p"))
    await observe.quiet()
    first = reads(observe, "resourceclaims/o") + reads(observe, "resourceclaims/q")
    assert first <= 3
    observe.submit(outcome("q-0", verdict=replace(WAITS, culprit=Culprit.DEVICE), error=TAKEN))
    await eventually(lambda: observe.prepared("q"))
    await observe.quiet()
    assert reads(observe, "resourceslices") == 1, "one list serves all pods for a minute"
    assert reads(observe, "resourceclaims/o") <= 6, "3 for each failure"
    assert json.dumps(observe.reporter.state())
