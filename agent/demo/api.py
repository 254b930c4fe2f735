"""A small API server over `Store`: what the agent asks of one, over plain HTTP on 127.0.0.1.

Served: pods (get, list, watch, patch of status), resourceclaims (get, list, watch), nodes (get),
events (create, patch), /version. Everything else is 404. Every request is kept in `requests`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from agent.aio import Tasks
from agent.demo.store import ApiError, Object, Store

POD = "/api/v1/namespaces/{namespace}/pods/{name}"
CLAIMS = "/apis/resource.k8s.io/v1"
EVENTS = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"
STRATEGIC = "application/strategic-merge-patch+json"
API_VERSIONS = {
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "resourceclaims": ("resource.k8s.io/v1", "ResourceClaim"),
    "events": ("events.k8s.io/v1", "Event"),
}
WATCH_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that came in; `wall` is unix seconds."""

    method: str
    path: str
    wall: float = field(default_factory=time.time)

    @property
    def is_write(self) -> bool:
        """True for everything that is not a read."""
        return self.method != "GET"


class ApiServer:
    """Listens on a free port of 127.0.0.1; stop() and start() again keep the port."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.port = 0
        self.requests: list[Seen] = []
        self._runner: web.AppRunner | None = None
        self._stopping = asyncio.Event()

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def writes(self) -> list[Seen]:
        """The requests that were not reads."""
        return [seen for seen in self.requests if seen.is_write]

    async def start(self) -> None:
        """Listen."""
        self._stopping = asyncio.Event()
        app = web.Application(middlewares=[self._answer_errors])
        app.add_routes(
            [
                web.get("/version", self._version),
                web.get("/api/v1/pods", self._pods),
                web.get("/api/v1/namespaces/{namespace}/pods", self._pods),
                web.get(POD, self._pod),
                web.get(POD + "/status", self._pod),
                web.patch(POD + "/status", self._patch_pod),
                web.get("/api/v1/nodes/{name}", self._node),
                web.get(CLAIMS + "/resourceclaims", self._claims),
                web.get(CLAIMS + "/namespaces/{namespace}/resourceclaims", self._claims),
                web.get(CLAIMS + "/namespaces/{namespace}/resourceclaims/{name}", self._claim),
                web.post(EVENTS, self._create_event),
                web.patch(EVENTS + "/{name}", self._patch_event),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.5, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Go away: watches end, connections are refused."""
        self._stopping.set()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig file for this server, without credentials."""
        cluster = {"name": "demo", "cluster": {"server": self.url}}
        context = {"name": "demo", "context": {"cluster": "demo", "user": "agent"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "users": [{"name": "agent", "user": {}}],
            "contexts": [context],
            "current-context": "demo",
        }
        path.write_text(yaml.safe_dump(config))

    @web.middleware
    async def _answer_errors(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.requests.append(Seen(request.method, request.path_qs))
        try:
            return await handler(request)
        except ApiError as error:
            return _status(error.code, error.reason, error.message)
        except web.HTTPException as error:
            return _status(error.status, error.reason.replace(" ", ""), error.text or "")

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"major": "1", "minor": "37", "gitVersion": "v1.37.2"})

    async def _pods(self, request: web.Request) -> web.StreamResponse:
        return await self._list(request, "pods")

    async def _claims(self, request: web.Request) -> web.StreamResponse:
        return await self._list(request, "resourceclaims")

    async def _pod(self, request: web.Request) -> web.Response:
        return self._get(request, "pods")

    async def _claim(self, request: web.Request) -> web.Response:
        return self._get(request, "resourceclaims")

    async def _node(self, request: web.Request) -> web.Response:
        return self._get(request, "nodes")

    def _get(self, request: web.Request, kind: str) -> web.Response:
        where = request.match_info
        obj = self.store.get(kind, where.get("namespace", ""), where["name"])
        return web.json_response(_typed(kind, obj))

    async def _patch_pod(self, request: web.Request) -> web.Response:
        if request.content_type != STRATEGIC:
            raise ApiError(415, "UnsupportedMediaType", f"this server takes only {STRATEGIC}")
        where = request.match_info
        patch = await request.json()
        key = ("pods", where["namespace"], where["name"])
        return web.json_response(_typed("pods", self.store.patch_status(key, patch)))

    async def _create_event(self, request: web.Request) -> web.Response:
        event = await request.json()
        missing = [
            k for k in ("eventTime", "action", "reason", "reportingController") if not event.get(k)
        ]
        if missing or len(event.get("note", "").encode()) > 1024:
            raise ApiError(422, "Invalid", f"Event is invalid: {missing or 'note is too long'}")
        meta = event.setdefault("metadata", {})
        meta["namespace"] = request.match_info["namespace"]
        if "name" not in meta:
            meta["name"] = meta.get("generateName", "event-") + uuid.uuid4().hex[:6]
        event = self.store.create("events", event, by="agent")
        return web.json_response(_typed("events", event), status=201)

    async def _patch_event(self, request: web.Request) -> web.Response:
        where = request.match_info
        patch = await request.json()
        key = ("events", where["namespace"], where["name"])
        event = self.store.update(
            key, lambda obj: obj.update(series=patch.get("series")), by="agent"
        )
        return web.json_response(_typed("events", event))

    async def _list(self, request: web.Request, kind: str) -> web.StreamResponse:
        selector = request.query.get("fieldSelector", "")
        namespace = request.match_info.get("namespace", "")
        if request.query.get("watch", "") in ("1", "true", "True"):
            return await self._watch(request, kind, selector)
        items = [
            _typed(kind, o) for o in self.store.list(kind, namespace) if _selected(o, selector)
        ]
        api_version, name = API_VERSIONS[kind]
        metadata = {"resourceVersion": str(self.store.version)}
        return web.json_response(
            {"apiVersion": api_version, "kind": f"{name}List", "metadata": metadata, "items": items}
        )

    async def _watch(self, request: web.Request, kind: str, selector: str) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        since = int(request.query.get("resourceVersion") or 0)
        limit = float(request.query.get("timeoutSeconds") or WATCH_SECONDS)
        namespace = request.match_info.get("namespace", "")

        async def send() -> None:
            with contextlib.suppress(ConnectionError):  # the watcher has gone
                async for change in self.store.watch(kind, since):
                    if namespace in ("", change.key[1]) and _selected(change.object, selector):
                        line = {"type": change.kind, "object": _typed(kind, change.object)}
                        await answer.write(json.dumps(line).encode() + b"\n")

        tasks = Tasks()
        sender = tasks.start("watch", send())
        stop = tasks.start("watch end", self._stopping.wait())
        try:
            await asyncio.wait({sender, stop}, timeout=limit, return_when="FIRST_COMPLETED")
        finally:
            await tasks.close()
        return answer


def _typed(kind: str, obj: Object) -> Object:
    api_version, name = API_VERSIONS[kind]
    return {"apiVersion": api_version, "kind": name, **obj}


def _selected(obj: Object, selector: str) -> bool:
    """Match a field selector of `path=value` terms with dotted paths."""
    for term in filter(None, selector.split(",")):
        path, _, wanted = term.partition("=")
        value: Any = obj
        for part in path.split("."):
            value = value.get(part, "") if isinstance(value, dict) else ""
        if value != wanted.removeprefix("="):
            return False
    return True


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return web.json_response(body, status=code)
