from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent import names
from agent.demo.objects import NAMESPACE
from agent.demo.processes import until
from agent.demo.script import Rule
from agent.demo.world import World
from tests.support.process import DRIVER, FAST, GPU, driver, node

KEY = ("pods", NAMESPACE, "p")
PATIENT = replace(FAST, resync=(60.0, 90.0), status=60.0)
FAILED = {"phase": "Failed", "reason": "Mine", "message": "because"}


def said(world: World, what: str) -> int:
    return sum(1 for one in world.kubelet.said if one.pod == "p" and one.what == what)


def annotate(world: World, value: str, status: dict[str, Any] | None = None) -> None:
    patch = {"metadata": {"annotations": {"a": value}}, "status": status or {}}
    world.store.patch_status(KEY, patch)


async def test_a_pod_runs_and_ends_and_is_unprepared_before_it_says_so() -> None:
    async with node() as world, driver(world):
        world.add_pod("p", GPU)
        await until(lambda: world.phase("p") == "Running", "it to run")
        world.kubelet.worker("p").exit()
        await until(lambda: world.phase("p") == "Succeeded", "it to end")
        assert len(world.calls(DRIVER, names.UNPREPARE)) == 1
        writes = [c for c in world.store.history if c.key == KEY and c.by == "kubelet"]
        assert writes[-1].wall >= world.calls(DRIVER, names.UNPREPARE)[0].ended


async def test_a_failed_prepare_is_an_event_and_is_tried_after_the_resync_period() -> None:
    async with node() as world, driver(world, Rule("p", "no", times=1)):
        world.add_pod("p", GPU)
        await until(lambda: world.phase("p") == "Running", "it to run")
        first, second = (one.wall for one in world.kubelet.said if one.what == "prepare")
        assert second - first >= FAST.resync[0]
        (event,) = world.store.list("events")
        assert event["reason"] == "FailedPrepareDynamicResources"
        assert event["note"] == (
            "Failed to prepare dynamic resources: prepare dynamic resources: "
            "NodePrepareResources failed for ResourceClaim p-gpu: no"
        )


async def test_an_annotation_makes_it_try_at_once_and_a_condition_does_not() -> None:
    async with node(PATIENT) as world, driver(world, Rule("p", "no")):
        world.add_pod("p", GPU)
        await until(lambda: said(world, "failed") == 1, "the first try")
        condition = {"type": "x/Y", "status": "False"}
        world.store.patch_status(KEY, {"status": {"conditions": [condition]}})
        annotate(world, "1")
        await until(lambda: said(world, "failed") == 2, "the second try")
        assert said(world, "prepare") == 2
        assert world.condition("p", "x/Y") == condition


async def test_failed_with_an_annotation_is_torn_down_and_stays() -> None:
    async with node(PATIENT) as world, driver(world, Rule("p", "no")):
        world.add_pod("p", GPU)
        await until(lambda: said(world, "failed") == 1, "the first try")
        annotate(world, "1", FAILED)
        await until(lambda: said(world, "unprepared") == 1, "the teardown")
        pod = world.pod("p")
        assert pod is not None
        assert {key: pod["status"][key] for key in FAILED} == FAILED
        state = pod["status"]["containerStatuses"][0]["state"]
        assert state["terminated"]["reason"] == "ContainerStatusUnknown"
        assert said(world, "prepare") == 1
        blanked = [c.object["status"].get("reason") for c in world.store.history if c.key == KEY]
        assert blanked[-3:] == ["Mine", None, "Mine"]


async def test_reason_and_message_are_lost_when_an_unprepare_fails_meanwhile() -> None:
    rules = (Rule("p", "no"), Rule("p", "stuck", operation="unprepare", times=1))
    async with node(PATIENT) as world, driver(world, *rules):
        world.add_pod("p", GPU)
        await until(lambda: said(world, "failed") == 1, "the first try")
        annotate(world, "1", FAILED)
        await until(lambda: said(world, "unprepared") == 1, "the teardown")
        pod = world.pod("p")
        assert pod is not None
        assert (pod["status"]["phase"], pod["status"].get("reason")) == ("Failed", None)


async def test_failed_alone_is_put_back_and_the_claim_is_lost() -> None:
    async with node() as world, driver(world, Rule("p", "no")):
        world.add_pod("p", GPU)
        await until(lambda: said(world, "failed") == 1, "the first try")
        world.store.patch_status(KEY, {"status": FAILED})
        await until(lambda: said(world, "reverted") > 0, "the status to be put back")
        pod = world.pod("p")
        assert pod is not None
        assert (pod["status"]["phase"], pod["status"].get("reason")) == ("Pending", None)
        await until(lambda: world.store.list("resourceclaims") == [], "the claim to go")
        await until(
            lambda: any("failed to fetch ResourceClaim" in one.text for one in world.kubelet.said),
            "the pod to be wedged",
        )


async def test_a_deleted_pod_goes_only_after_its_unprepare_worked() -> None:
    async with node() as world, driver(world, Rule("p", "stuck", operation="unprepare", times=2)):
        world.add_pod("p", GPU)
        await until(lambda: world.phase("p") == "Running", "it to run")
        world.store.delete(KEY)
        await until(lambda: world.pod("p") is None, "it to go")
        assert len(world.calls(DRIVER, names.UNPREPARE)) == 3
        assert said(world, "unprepare failed") == 2


async def test_a_prepare_in_flight_is_not_cancelled_by_deletion() -> None:
    async with node() as world, driver(world, Rule("p", delay=0.5)):
        world.add_pod("p", GPU)
        await until(lambda: len(world.calls(DRIVER)) == 1, "the call")
        world.store.delete(KEY)
        await until(lambda: world.pod("p") is None, "it to go")
        (prepare,) = world.calls(DRIVER)
        (unprepare,) = world.calls(DRIVER, names.UNPREPARE)
        assert 0 < prepare.ended <= unprepare.started


async def test_a_pod_removed_by_force_is_unprepared_all_the_same() -> None:
    async with node() as world, driver(world):
        world.add_pod("p", GPU)
        await until(lambda: world.phase("p") == "Running", "it to run")
        world.store.remove(KEY, by="user")
        await until(lambda: len(world.calls(DRIVER, names.UNPREPARE)) == 1, "the unprepare")
