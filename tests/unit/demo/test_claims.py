from __future__ import annotations

from collections.abc import Callable

import pytest

from agent import names
from agent.demo import messages
from agent.demo.claims import PrepareError
from agent.demo.objects import NAMESPACE, Want, add_pod
from agent.demo.script import Rule
from agent.demo.store import Object
from agent.demo.world import World
from tests.support.process import DRIVER, GPU, driver, node

OTHER = "nic.example.com"
CLAIM = ("resourceclaims", NAMESPACE, "p-gpu")


def unseen_pod(world: World, *wants: Want) -> Object:
    """A pod that the node's own kubelet does not serve, for calls made by hand."""
    return add_pod(world.store, "p", "another-node", wants)


async def test_one_call_per_driver_with_all_claims_of_the_pod() -> None:
    async with node() as world, driver(world), driver(world, name=OTHER):
        wants = (GPU, Want("two", DRIVER, ("gpu-1",)), Want("nic", OTHER, ("nic-0",)))
        pod = unseen_pod(world, *wants)
        claims = world.kubelet.claims
        await claims.prepare(pod)
        assert [call.claims for call in world.calls(DRIVER)] == [("p-gpu", "p-two")]
        assert [call.claims for call in world.calls(OTHER)] == [("p-nic",)]
        assert all(info.prepared for info in claims.cache.values())
        await claims.prepare(pod)
        assert len(claims.calls) == 2
        await claims.unprepare(pod["metadata"]["uid"])
        assert claims.cache == {}
        assert len(world.calls(DRIVER, names.UNPREPARE)) == 1


async def test_the_first_error_ends_it_and_what_worked_is_asked_again() -> None:
    async with node() as world, driver(world), driver(world, Rule("nic", "no"), name=OTHER):
        pod = unseen_pod(world, GPU, Want("nic", OTHER, ("nic-0",)))
        claims = world.kubelet.claims
        for _ in range(12):
            with pytest.raises(PrepareError, match="failed for ResourceClaim p-nic: no"):
                await claims.prepare(pod)
        # The order is random: the good driver is asked before the bad one about every other time.
        assert 0 < len(world.calls(DRIVER)) < 12
        assert len(world.calls(OTHER)) == 12
        assert claims.needs_unprepare(pod["metadata"]["uid"])
        assert not any(info.prepared for info in claims.cache.values())


async def test_a_status_is_told_as_grpc_go_tells_it() -> None:
    rules = (Rule("p", "not now", code=14, times=1), Rule("p", "odd", code=99))
    async with node() as world, driver(world, *rules):
        pod = unseen_pod(world, GPU)
        text = "^NodePrepareResources: rpc error: code = Unavailable desc = not now$"
        with pytest.raises(PrepareError, match=text):
            await world.kubelet.claims.prepare(pod)
        with pytest.raises(PrepareError, match=r"code = Code\(99\) desc = odd"):
            await world.kubelet.claims.prepare(pod)


async def test_a_call_ends_at_the_deadline() -> None:
    async with node() as world, driver(world, Rule("p", delay=30)):
        world.kubelet.claims._deadline = 0.2
        with pytest.raises(PrepareError, match="code = DeadlineExceeded"):
            await world.kubelet.claims.prepare(unseen_pod(world, GPU))


def not_reserved(claim: Object) -> None:
    claim["status"]["reservedFor"] = [{"uid": "other"}]


def of_another_pod(claim: Object) -> None:
    claim["metadata"]["ownerReferences"][0]["uid"] = "other"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda claim: claim["status"].pop("allocation"), "ResourceClaim p-gpu: not allocated"),
        (not_reserved, "is not allowed to use ResourceClaim p-gpu"),
        (of_another_pod, "ResourceClaim p-gpu was not created for pod p"),
        (lambda claim: None, f"DRA driver {DRIVER} is not registered"),
    ],
)
async def test_what_is_checked_before_any_call_leaves_nothing_to_unprepare(
    change: Callable[[Object], None], text: str
) -> None:
    async with node() as world:
        pod = unseen_pod(world, GPU)
        world.store.update(CLAIM, change)
        with pytest.raises(PrepareError, match=text):
            await world.kubelet.claims.prepare(pod)
        assert world.kubelet.claims.cache == {}
        world.store.remove(CLAIM)
        with pytest.raises(PrepareError, match="failed to fetch ResourceClaim p-gpu"):
            await world.kubelet.claims.prepare(pod)


async def test_a_generated_claim_that_is_missing_in_the_status() -> None:
    async with node() as world:
        pod = unseen_pod(world, GPU)
        pod["status"]["resourceClaimStatuses"] = []
        with pytest.raises(PrepareError, match="ResourceClaim not created yet"):
            await world.kubelet.claims.prepare(pod)


async def test_a_failed_unprepare_blocks_the_claim_for_others() -> None:
    async with node() as world, driver(world, Rule("p", "stuck", operation="unprepare", times=1)):
        pod = unseen_pod(world, GPU)
        claims, uid = world.kubelet.claims, pod["metadata"]["uid"]
        await claims.prepare(pod)
        with pytest.raises(PrepareError, match="failed for ResourceClaim p-gpu: stuck"):
            await claims.unprepare(uid)
        with pytest.raises(PrepareError, match="is being unprepared"):
            await claims.prepare(pod)
        await claims.unprepare(uid)
        await claims.prepare(pod)


async def test_a_claim_made_anew_under_its_name_is_refused_while_the_old_one_lives() -> None:
    async with node() as world, driver(world):
        pod = unseen_pod(world, GPU)
        await world.kubelet.claims.prepare(pod)
        world.store.update(CLAIM, lambda claim: claim["metadata"].update(uid="new"))
        with pytest.raises(PrepareError, match="still exists"):
            await world.kubelet.claims.prepare(pod)


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"stranger": messages.ClaimAnswer()}, "returned result for unknown claim UID stranger"),
        ({}, "NodePrepareResources skipped 1 ResourceClaims"),
    ],
)
async def test_answers_that_do_not_fit(
    answers: dict[str, messages.ClaimAnswer], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node() as world, driver(world):
        body = messages.answers(names.PREPARE, answers)
        monkeypatch.setattr("agent.demo.driver.messages.answers", lambda *_: body)
        with pytest.raises(PrepareError, match=text):
            await world.kubelet.claims.prepare(unseen_pod(world, GPU))
