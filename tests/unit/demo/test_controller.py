from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.demo.controller import ClaimController, claim_names
from agent.demo.objects import NAMESPACE, Want, add_pod
from agent.demo.processes import until
from agent.demo.store import Store

KEY = ("pods", NAMESPACE, "p")
CLAIM = ("resourceclaims", NAMESPACE, "p-gpu")


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = Store()
    add_pod(store, "p", "node-a", (Want("gpu", "d", ("gpu-0",)),))
    task = asyncio.create_task(ClaimController(store).run())
    yield store
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_failed_pods_generated_claim_is_deleted(store: Store) -> None:
    store.patch_status(KEY, {"status": {"phase": "Failed"}})
    await until(lambda: not store.list("resourceclaims"), "the claim to go")


async def test_a_claim_that_another_pod_uses_keeps_its_allocation(store: Store) -> None:
    def shared(claim: dict[str, object]) -> None:
        status = claim["status"]
        assert isinstance(status, dict)
        status["reservedFor"] = [*status["reservedFor"], {"uid": "other"}]

    store.update(CLAIM, shared)
    store.remove(KEY)
    await until(lambda: store.get(*CLAIM)["status"]["reservedFor"] == [{"uid": "other"}], "it")
    assert "allocation" in store.get(*CLAIM)["status"]


async def test_a_standalone_claim_is_deallocated_and_stays(store: Store) -> None:
    store.update(CLAIM, lambda claim: claim["metadata"].pop("ownerReferences"))
    store.patch_status(KEY, {"status": {"phase": "Succeeded"}})
    await until(lambda: store.get(*CLAIM)["status"] == {}, "it")


def test_a_generated_claim_that_is_not_made_yet_has_no_name() -> None:
    spec = {"resourceClaims": [{"name": "a", "resourceClaimName": "A"}, {"name": "b"}]}
    assert claim_names({"spec": spec}) == {"a": "A"}
