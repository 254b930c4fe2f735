"""A small API server for tests of agent.kube and agent.report: real HTTP, state in memory.

Pods (get, list, watch, patch of status by strategic merge), claims, events, nodes; and faults.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

Json = dict[str, Any]
NODE = "node-a"


@dataclass
class Seen:
    method: str
    path: str
    query: dict[str, str]
    token: str
    content_type: str
    body: Json | None
    at: float


@dataclass
class Fault:
    """Answers the next `times` requests that match instead of the server."""

    method: str
    path: str  # a part of it
    code: int  # 0: hang
    message: str = "told so by the test"
    times: int = 1


@dataclass
class KubeApi:
    pods: dict[tuple[str, str], Json] = field(default_factory=dict)
    claims: dict[tuple[str, str], Json] = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    nodes: dict[str, Json] = field(default_factory=dict)
    slices: list[Json] = field(default_factory=list)
    taint_rules: list[Json] | None = None  # None: a server before 1.37
    old_events: list[Json] = field(default_factory=list)  # of kubelet: core/v1
    seen: list[Seen] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    port: int = 0
    watches: int = 0
    _log: list[tuple[int, Json]] = field(default_factory=list)
    _version: int = 100
    _oldest: int = 0
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _runner: web.AppRunner | None = None
    _cut: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._cut = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Connections break, new ones are refused; the state stays."""
        self._cut.set()
        async with self._news:
            self._news.notify_all()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def kubeconfig(self, folder: Path, **user: str) -> str:
        path = folder / "kubeconfig"
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user}],
        }
        path.write_text(json.dumps(document))
        return str(path)

    # state

    async def put_pod(self, pod: Json) -> Json:
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        kind = "MODIFIED" if key in self.pods else "ADDED"
        self.pods[key] = pod
        await self._changed(kind, pod)
        return pod

    async def change_pod(self, name: str, change: Callable[[Json], None], ns: str = "ns") -> None:
        pod = copy.deepcopy(self.pods[ns, name])
        change(pod)
        await self.put_pod(pod)

    async def delete_pod(self, name: str, ns: str = "ns") -> None:
        await self._changed("DELETED", self.pods.pop((ns, name)))

    def put_claim(self, claim: Json) -> None:
        self.claims[claim["metadata"]["namespace"], claim["metadata"]["name"]] = claim

    def put_node(self, version: str = "v1.37.2") -> None:
        self.nodes[NODE] = {"status": {"nodeInfo": {"kubeletVersion": version}}}

    def forget_history(self) -> None:
        """Watches from a version before now get a 410."""
        self._version += 10
        self._oldest = self._version
        self._log.clear()

    def pod(self, name: str, ns: str = "ns") -> Json:
        return self.pods[ns, name]

    def condition(self, name: str, kind: str, ns: str = "ns") -> Json:
        conditions = self.pods[ns, name].get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    def patches(self) -> list[Seen]:
        return [s for s in self.seen if s.method == "PATCH"]

    def reads(self) -> list[str]:
        """Requests that are not the pod watch's own."""
        return [s.path for s in self.seen if s.path != "/api/v1/pods"]

    # HTTP

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        seen = Seen(
            request.method,
            request.path,
            dict(request.query),
            request.headers.get("Authorization", ""),
            request.content_type,
            json.loads(raw) if raw else None,
            asyncio.get_running_loop().time(),
        )
        self.seen.append(seen)
        for fault in self.faults:
            if fault.times and fault.method == seen.method and fault.path in seen.path:
                fault.times -= 1
                if fault.code == 0:
                    await self._cut.wait()
                    return web.Response()
                return _status(fault.code, fault.message)
        parts = request.path.strip("/").split("/")
        if parts[:2] == ["apis", "events.k8s.io"]:
            return self._event(seen)
        if parts == ["api", "v1", "pods"]:
            return await (self._watch(request) if "watch" in seen.query else self._list(seen))
        if parts[:3] == ["api", "v1", "nodes"]:
            return _found(self.nodes.get(parts[3]))
        if parts[-1] == "resourceslices":
            return _listed(self.slices, seen, "spec.driver")
        if parts[-1] == "devicetaintrules":
            if self.taint_rules is None:
                return _status(404, "the server could not find the requested resource")
            return web.json_response({"items": self.taint_rules})
        if parts[:3] == ["api", "v1", "namespaces"] and parts[-1] == "events":
            return _listed(self.old_events, seen, "involvedObject.uid")
        if "resourceclaims" in parts:
            return _found(self.claims.get((parts[4], parts[6])))
        key = (parts[3], parts[5])
        if seen.method == "PATCH":
            return await self._patch(key, seen)
        return _found(self.pods.get(key))

    def _event(self, seen: Seen) -> web.Response:
        assert seen.body is not None
        if any(e["metadata"]["name"] == seen.body["metadata"]["name"] for e in self.events):
            return _status(409, "already exists")
        self.events.append(seen.body)
        return web.json_response(seen.body, status=201)

    async def _patch(self, key: tuple[str, str], seen: Seen) -> web.Response:
        body = seen.body or {}
        assert seen.path.endswith("/status")
        assert seen.content_type == "application/strategic-merge-patch+json"
        old = self.pods.get(key)
        if old is None:
            return _status(404, "not found")
        meta = body.get("metadata", {})
        if meta.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            return _status(422, "metadata.uid: Invalid value: field is immutable")
        version = old["metadata"]["resourceVersion"]
        if meta.get("resourceVersion", version) != version:
            return _status(409, "the object has been modified")
        pod = copy.deepcopy(old)
        pod["metadata"].setdefault("annotations", {}).update(meta.get("annotations", {}))
        status = pod.setdefault("status", {})
        for name, value in body.get("status", {}).items():
            if name != "conditions":
                status[name] = value
        merged = {c["type"]: c for c in status.get("conditions", [])}
        for condition in body.get("status", {}).get("conditions", []):
            merged[condition["type"]] = {**merged.get(condition["type"], {}), **condition}
        status["conditions"] = list(merged.values())
        await self.put_pod(pod)
        return web.json_response(pod)

    async def _list(self, seen: Seen) -> web.Response:
        limit, start = int(seen.query.get("limit", 500)), int(seen.query.get("continue") or 0)
        pods = sorted(self.pods.values(), key=lambda p: str(p["metadata"]["name"]))
        page = pods[start : start + limit]
        more = str(start + limit) if start + limit < len(pods) else ""
        meta = {"resourceVersion": str(self._version), "continue": more}
        return web.json_response({"metadata": meta, "items": page})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches += 1
        at = int(request.query["resourceVersion"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if at < self._oldest:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
            return response
        while not self._cut.is_set():
            for version, event in list(self._log):
                if version > at:
                    await response.write(json.dumps(event).encode() + b"\n")
                    at = version
            async with self._news:
                if self._log and self._log[-1][0] > at:
                    continue
                await self._news.wait()
        if request.transport is not None:
            request.transport.abort()
        return response

    async def _changed(self, kind: str, pod: Json) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        self._log.append((self._version, {"type": kind, "object": copy.deepcopy(pod)}))
        async with self._news:
            self._news.notify_all()


def make_pod(name: str, *claims: str, owner: str = "", **status: Any) -> Json:
    """A Pending pod of NODE whose claims are generated from templates."""
    uid = f"uid-{name}"
    meta: Json = {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": "1"}
    if owner:
        meta["ownerReferences"] = [
            {"kind": owner, "name": f"{name}-owner", "uid": f"owner-of-{name}", "controller": True}
        ]
    made = [{"name": f"r{i}", "resourceClaimName": claim} for i, claim in enumerate(claims)]
    return {
        "metadata": meta,
        "spec": {
            "nodeName": NODE,
            "restartPolicy": "Never",
            "resourceClaims": [
                {"name": f"r{i}", "resourceClaimTemplateName": "t"} for i in range(len(claims))
            ],
        },
        "status": {
            "phase": "Pending",
            "resourceClaimStatuses": made,
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            **status,
        },
    }


def make_claim(name: str, pod: str, *devices: str, driver: str = "gpu.example.com") -> Json:
    """A claim generated for a pod; a device may be written `driver/device`."""
    uid = f"uid-{pod}"
    results = []
    for i, device in enumerate(devices):
        owner, _, short = device.rpartition("/")
        results.append(
            {"request": f"req{i}", "driver": owner or driver, "pool": NODE, "device": short}
        )
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "5",
            "ownerReferences": [{"kind": "Pod", "name": pod, "uid": uid, "controller": True}],
        },
        "spec": {},
        "status": {
            "reservedFor": [{"resource": "pods", "name": pod, "uid": uid}],
            "allocation": {"devices": {"results": results}},
        },
    }


def make_slice(driver: str, *devices: Json) -> Json:
    return {
        "metadata": {"name": f"{NODE}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def start_container(pod: Json) -> None:
    pod["status"]["phase"] = "Running"
    pod["status"]["containerStatuses"] = [{"name": "c", "state": {"running": {"startedAt": "x"}}}]


def _found(document: Json | None) -> web.Response:
    return _status(404, "not found") if document is None else web.json_response(document)


def _listed(items: list[Json], seen: Seen, by: str) -> web.Response:
    """A list narrowed by one field of the selector."""
    wanted = dict(part.split("=", 1) for part in seen.query["fieldSelector"].split(","))[by]
    outer, inner = by.split(".")
    found = [item for item in items if item[outer][inner] == wanted]
    return web.json_response({"metadata": {}, "items": found})


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


async def eventually(condition: Callable[[], object], limit: float = 10.0) -> None:
    """Wait until the condition holds; fails after `limit` seconds."""
    async with asyncio.timeout(limit):
        while not condition():
            await asyncio.sleep(0.01)
