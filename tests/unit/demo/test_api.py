from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from agent.demo.api import EVENTS, STRATEGIC, ApiServer
from agent.demo.objects import NAMESPACE, Want, add_node, add_pod
from agent.demo.store import Store

POD = f"/api/v1/namespaces/{NAMESPACE}/pods/p"
JSON = {"Content-Type": STRATEGIC}
Served = tuple[ApiServer, aiohttp.ClientSession]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    store = Store()
    add_node(store, "node-a")
    add_pod(store, "p", "node-a", (Want("gpu", "d", ("gpu-0",)),))
    add_pod(store, "elsewhere", "node-b", ())
    server = ApiServer(store)
    await server.start()
    async with aiohttp.ClientSession(server.url) as session:
        yield server, session
    await server.stop()


async def test_reads(served: Served) -> None:
    _, session = served
    for path, kind in (
        (POD, "Pod"),
        ("/api/v1/nodes/node-a", "Node"),
        (f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims/p-gpu", "ResourceClaim"),
        ("/apis/resource.k8s.io/v1/resourceclaims", "ResourceClaimList"),
    ):
        async with session.get(path) as answer:
            assert (answer.status, (await answer.json())["kind"]) == (200, kind)
    async with session.get("/version") as answer:
        assert (await answer.json())["gitVersion"] == "v1.37.2"


async def test_a_list_is_of_one_node_and_other_paths_are_404(served: Served) -> None:
    _, session = served
    query = {"fieldSelector": "spec.nodeName=node-a"}
    async with session.get("/api/v1/pods", params=query) as answer:
        assert [pod["metadata"]["name"] for pod in (await answer.json())["items"]] == ["p"]
    for path in ("/api/v1/secrets", POD + "x"):
        async with session.get(path) as answer:
            body = await answer.json()
            assert (answer.status, body["kind"], body["code"]) == (404, "Status", 404)


async def test_status_patches_and_their_refusals(served: Served) -> None:
    server, session = served
    patch = {"status": {"conditions": [{"type": "x/Y", "status": "True"}]}}
    async with session.patch(POD + "/status", data=json.dumps(patch), headers=JSON) as answer:
        types = [c["type"] for c in (await answer.json())["status"]["conditions"]]
        assert types == ["PodScheduled", "x/Y"]
    for meta, status in (({"uid": "no"}, 422), ({"resourceVersion": "1"}, 409)):
        body = json.dumps({"metadata": meta})
        async with session.patch(POD + "/status", data=body, headers=JSON) as answer:
            assert answer.status == status
    merge = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(POD + "/status", data="{}", headers=merge) as answer:
        assert answer.status == 415
    assert len(server.writes) == 4


async def test_events(served: Served) -> None:
    _, session = served
    path = EVENTS.format(namespace=NAMESPACE)
    event = {"metadata": {"name": "e"}, "reason": "R", "action": "A", "note": "n"}
    async with session.post(path, json=event) as answer:
        assert answer.status == 422
    event |= {"eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "x/y"}
    async with session.post(path, json=event) as answer:
        assert answer.status == 201
    async with session.patch(path + "/e", json={"series": {"count": 2}}) as answer:
        assert (await answer.json())["series"] == {"count": 2}


async def test_a_watch_follows_and_ends_when_told(served: Served) -> None:
    server, session = served
    query = {"watch": "true", "fieldSelector": "spec.nodeName=node-a", "timeoutSeconds": "1"}
    query["resourceVersion"] = str(server.store.version)
    async with session.get("/api/v1/pods", params=query) as answer:
        add_pod(server.store, "not-ours", "node-b", ())
        add_pod(server.store, "ours", "node-a", ())
        line = json.loads(await asyncio.wait_for(answer.content.readline(), 2))
        assert (line["type"], line["object"]["metadata"]["name"]) == ("ADDED", "ours")
        assert await asyncio.wait_for(answer.content.readline(), 3) == b""


async def test_it_goes_away_and_comes_back_at_the_same_port(served: Served) -> None:
    server, session = served
    url = server.url
    async with session.get("/api/v1/pods", params={"watch": "1"}) as answer:
        await asyncio.wait_for(server.stop(), 3)
        assert answer.status == 200
    with pytest.raises(aiohttp.ClientError):
        await session.get(POD)
    await server.start()
    assert server.url == url
    async with session.get(POD) as answer:
        assert answer.status == 200


async def test_the_kubeconfig_names_it(served: Served, tmp_path: Path) -> None:
    server, _ = served
    server.write_kubeconfig(tmp_path / "k")
    config = yaml.safe_load((tmp_path / "k").read_text())
    assert config["clusters"][0]["cluster"]["server"] == server.url
