"""What a pod and its driver get when a prepare fails, with the whole agent as a process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent import names
from agent.demo.objects import Want
from agent.demo.processes import until
from agent.demo.scenarios import BAD_CONFIG, BAD_DEVICE, BUSY
from agent.demo.script import Rule
from agent.demo.store import Object
from agent.demo.world import World
from tests.support.process import BESIDE_AGENT, DRIVER, GPU, REAL_WAIT, agent_node, node

pytestmark = pytest.mark.timeout(90)

INVALID = Rule("p-gpu", BAD_CONFIG)


def kubelet_calls(world: World, pod: str = "p") -> int:
    return sum(1 for one in world.kubelet.said if (one.pod, one.what) == (pod, "prepare"))


def failures(pod: Object) -> list[dict[str, Any]]:
    document = json.loads(pod["metadata"]["annotations"][names.ANNOTATION_FAILURES])
    assert document["version"] == 1
    devices: list[dict[str, Any]] = document["devices"]
    return devices


def told(world: World) -> list[Object]:
    """Events of the agent about pods that it failed."""
    return [e for e in world.store.list("events") if e["reason"] == names.EVENT_REASON]


def present(world: World, name: str = "p") -> Object:
    pod = world.pod(name)
    assert pod is not None
    return pod


async def test_a_healthy_pod_costs_no_api_write() -> None:
    async with agent_node(mode="enforce") as world:
        world.add_pod("p", GPU)
        await world.wait_phase("p", "Running")
        world.kubelet.worker("p").exit()
        await world.wait_phase("p", "Succeeded")
        assert len(world.calls(DRIVER)) == len(world.calls(DRIVER, names.UNPREPARE)) == 1
        assert world.api.writes == []


async def test_a_transient_failure_is_retried_within_kubelets_call() -> None:
    async with agent_node(Rule("p-gpu", BUSY, times=3)) as world:
        world.add_pod("p", GPU)
        await world.wait_phase("p", "Running")
        assert len(world.calls(DRIVER)) == 4
        assert kubelet_calls(world) == 1


async def test_only_the_failing_claim_of_a_batch_is_asked_again() -> None:
    async with agent_node(Rule("p-two", BUSY, times=2)) as world:
        world.add_pod("p", GPU, Want("two", DRIVER, ("gpu-1",)))
        await world.wait_phase("p", "Running")
        asked = [call.claims for call in world.calls(DRIVER)]
        assert asked == [("p-gpu", "p-two"), ("p-two",), ("p-two",)]
        devices = [info.devices[DRIVER] for info in world.kubelet.claims.cache.values()]
        assert sorted(device.device for (device,) in devices) == ["gpu-0", "gpu-1"]


async def test_enforce_fails_a_pod_whose_parameters_are_wrong_once() -> None:
    async with agent_node(INVALID, periods=REAL_WAIT, mode="enforce") as world:
        world.add_pod("p", GPU)
        await until(lambda: world.calls(DRIVER, names.UNPREPARE), "the unprepare", limit=20)
        await until(
            lambda: present(world)["status"].get("reason") == names.PHASE_REASON, "the reason"
        )
        pod = present(world)
        assert pod["status"]["phase"] == "Failed"
        assert world.condition("p")["status"] == "False"
        assert world.condition("p", names.CONDITION_INVALID_PARAMETERS)["status"] == "True"
        (device,) = failures(pod)
        assert {key: device[key] for key in ("driver", "pool", "device", "state", "culprit")} == {
            "driver": DRIVER,
            "pool": "node-a",
            "device": "gpu-0",
            "state": "failed",
            "culprit": "parameters",
        }
        assert "invalid partition count: -1" in device["cause"]
        await until(lambda: world.store.list("resourceclaims") == [], "the claim's release")
        await until(lambda: told(world), "the event")
        # Nothing moves any more, over several rounds of kubelet's status manager.
        seen = len(world.kubelet.said)
        version = pod["metadata"]["resourceVersion"]
        world.add_pod("later", Want("gpu", DRIVER, ("gpu-9",)))
        await world.wait_phase("later", "Running")
        await until(
            lambda: len([s for s in world.kubelet.said[seen:] if s.what == "running"]) == 1, "it"
        )
        assert present(world)["metadata"]["resourceVersion"] == version
        assert len(told(world)) == 1
        assert kubelet_calls(world) == len(world.calls(DRIVER, pod="p")) == 1
        assert not [one for one in world.kubelet.said if one.what == "reverted"]


async def test_observe_tells_and_lets_kubelet_go_on_asking() -> None:
    async with agent_node(INVALID) as world:
        world.add_pod("p", GPU)
        await until(lambda: kubelet_calls(world) >= 2, "kubelet's second call", limit=30)
        await until(lambda: len(world.calls(DRIVER)) >= 2, "the driver's second call")
        await until(lambda: world.condition("p"), "the condition")
        pod = present(world)
        assert pod["status"]["phase"] == "Pending"
        condition = world.condition("p")
        assert condition["status"] == "False"
        assert "invalid partition count: -1" in condition["message"]
        assert names.ANNOTATION_FAILURES not in pod["metadata"]["annotations"]


async def test_the_drivers_own_permanent_error_acts_in_observe_too() -> None:
    rule = Rule("p-gpu", BAD_CONFIG, permanent_error=True)
    async with agent_node(rule, periods=REAL_WAIT) as world:
        world.add_pod("p", GPU)
        await until(lambda: world.phase("p") == "Failed", "the pod Failed", limit=20)
        assert len(world.calls(DRIVER)) == 1


async def test_a_device_at_fault_is_told_and_its_verdict_held() -> None:
    rule = Rule("gpu-5", BAD_DEVICE)
    async with agent_node(rule, mode="enforce") as world:
        world.add_pod("p", Want("gpu", DRIVER, ("gpu-4", "gpu-5")))
        await until(lambda: kubelet_calls(world) >= 3, "kubelet to ask again", limit=40)
        assert len(world.calls(DRIVER)) == 1
        pod = present(world)
        assert pod["status"]["phase"] == "Pending"
        states = {device["device"]: device["state"] for device in failures(pod)}
        assert states == {"gpu-5": "failed", "gpu-4": "blocked"}


async def test_a_condition_turns_true_when_the_prepare_works_at_last() -> None:
    async with agent_node(Rule("p-gpu", BAD_CONFIG, times=1)) as world:
        world.add_pod("p", GPU)
        await until(lambda: world.condition("p").get("status") == "False", "False")
        await world.wait_phase("p", "Running", limit=30)
        await until(lambda: world.condition("p").get("status") == "True", "True")


async def test_calls_go_through_without_an_api_server_and_the_writes_come_later() -> None:
    async with agent_node(INVALID) as world:
        await world.api.stop()
        world.add_pod("good", GPU)
        await world.wait_phase("good", "Running")
        world.add_pod("p", Want("gpu", DRIVER, ("gpu-1",)))
        await until(lambda: any(s.what == "failed" for s in world.kubelet.said), "the failure")
        assert world.condition("p") == {}
        await world.api.start()
        await until(
            lambda: world.condition("p").get("status") == "False", "the condition", limit=40
        )


async def test_without_access_to_an_api_server_it_is_a_proxy_that_retries() -> None:
    async with node(BESIDE_AGENT) as world:
        world.script(DRIVER, Rule("p-gpu", BUSY, times=2))
        await world.start_driver(DRIVER)
        world.agent = world.new_agent({}, kubeconfig=False)
        await world.agent.start()
        await world.agent_serves()
        world.add_pod("p", GPU)
        await world.wait_phase("p", "Running")
        assert len(world.calls(DRIVER)) == 3
        assert world.api.requests == []
