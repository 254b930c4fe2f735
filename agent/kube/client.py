"""The requests this agent makes to the API server. Bodies are the API's own JSON as dicts.

Every request has a time limit, every failure is one of agent.kube.errors.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from agent import names
from agent.core.text import clean
from agent.errors import UserError
from agent.kube import access, lazy
from agent.kube.errors import Unavailable, from_status
from agent.kube.wire import document, lines, message, page_of, watch_event, words

JsonDict = dict[str, Any]
OnRequest = Callable[[str, str, int, float], None]
"""(verb, resource, HTTP status or 0, seconds)."""

REQUEST_TIMEOUT = 10.0
"""Seconds for one request in total; connecting may take half of it."""

WATCH_SLACK = 30.0
"""A watch silent this long beyond its end is dead: a server may vanish without a FIN."""

PAGE = 100
"""Objects per page of a list: a page of pods is about a megabyte at most."""

_STRATEGIC = "application/strategic-merge-patch+json"
_RESOURCE = "/apis/resource.k8s.io/v1"
_EVENTS = "/apis/events.k8s.io/v1"


class Kube:
    """A connection to one API server."""

    def __init__(self, client: Any, *, on_request: OnRequest | None = None) -> None:  # noqa: ANN401 - untyped
        self._client = client
        self._on_request = on_request

    @classmethod
    async def open(
        cls,
        *,
        kubeconfig: str = "",
        environ: Mapping[str, str] = os.environ,
        service_account: Path = access.SERVICE_ACCOUNT,
        on_request: OnRequest | None = None,
        option: str = "report.kubeconfig",
    ) -> Kube | None:
        """Return a client, or None where no API access is configured at all.

        Makes no request. Raises UserError for a kubeconfig that cannot be used.
        """
        if not kubeconfig and not access.in_cluster(environ, service_account):
            return None
        library = await asyncio.to_thread(lazy.load)
        if kubeconfig:
            configuration = await access.from_kubeconfig(library, kubeconfig, option)
        else:
            configuration = access.from_service_account(library, environ, service_account)
        try:
            client = library.api_client(configuration)
        except Exception as exc:  # most of all a certificate or key that is none, or not a pair
            where = option if kubeconfig else "the pod's service account"
            line = clean(str(exc), 300) or type(exc).__name__
            raise UserError(f"{where}: certificates cannot be used: {line}") from exc
        client.user_agent = names.PRODUCT
        return cls(client, on_request=on_request)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def get_claim(self, namespace: str, name: str) -> JsonDict:
        """Read a ResourceClaim (resource.k8s.io/v1, served since 1.34)."""
        path = f"{_RESOURCE}/namespaces/{quote(namespace)}/resourceclaims/{quote(name)}"
        return await self._request("GET", path, resource="resourceclaims")

    async def get_pod(self, namespace: str, name: str) -> JsonDict:
        """Read a pod."""
        return await self._request("GET", _pod_path(namespace, name), resource="pods")

    async def get_node(self, name: str) -> JsonDict:
        """Read a node."""
        return await self._request("GET", f"/api/v1/nodes/{quote(name)}", resource="nodes")

    async def list_slices(self, driver: str, node: str) -> list[JsonDict]:
        """Read a driver's ResourceSlices of a node; at most a page of them."""
        query = [
            ("fieldSelector", f"spec.driver={driver},spec.nodeName={node}"),
            ("limit", str(PAGE)),
        ]
        page = await self._request(
            "GET", f"{_RESOURCE}/resourceslices", resource="resourceslices", query=query
        )
        return page_of(page)[0]

    async def list_taint_rules(self) -> list[JsonDict]:
        """Read the cluster's DeviceTaintRules (v1: from 1.37 on); at most a page of them."""
        path = f"{_RESOURCE}/devicetaintrules"
        query = [("limit", str(PAGE))]
        page = await self._request("GET", path, resource="devicetaintrules", query=query)
        return page_of(page)[0]

    async def list_events(self, namespace: str, uid: str, reason: str) -> list[JsonDict]:
        """Read the events of one reason about one object; for people's commands only."""
        query = [("fieldSelector", f"involvedObject.uid={uid},reason={reason}")]
        path = f"/api/v1/namespaces/{quote(namespace)}/events"
        page = await self._request("GET", path, resource="events", query=query)
        return page_of(page)[0]

    async def patch_pod_status(self, namespace: str, name: str, body: JsonDict) -> JsonDict:
        """Patch a pod's status by strategic merge; conditions are merged by type."""
        path = f"{_pod_path(namespace, name)}/status"
        return await self._request(
            "PATCH", path, resource="pods/status", body=body, content_type=_STRATEGIC
        )

    async def create_event(self, namespace: str, body: JsonDict) -> JsonDict:
        """Create an Event of events.k8s.io/v1."""
        path = f"{_EVENTS}/namespaces/{quote(namespace)}/events"
        return await self._request("POST", path, resource="events", body=body)

    async def list_pods(self, node: str) -> tuple[list[JsonDict], str]:
        """Read all pods of a node, page by page: (pods, resourceVersion)."""
        pods: list[JsonDict] = []
        query = [("fieldSelector", f"spec.nodeName={node}"), ("limit", str(PAGE))]
        more = ""
        while True:
            page = await self._request(
                "GET",
                "/api/v1/pods",
                resource="pods",
                query=[*query, ("continue", more)] if more else query,
            )
            items, meta = page_of(page)
            pods.extend(items)
            more = meta.get("continue") or ""
            if not more:
                return pods, str(meta.get("resourceVersion") or "")

    async def watch_pods(
        self, node: str, resource_version: str, seconds: float
    ) -> AsyncIterator[JsonDict]:
        """Yield watch events ({"type", "object"}) until the server ends the watch after `seconds`.

        Raises Expired when the resourceVersion is too old, Unavailable when the connection breaks.
        """
        query = [
            ("fieldSelector", f"spec.nodeName={node}"),
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(int(seconds))),
        ]
        # The library's default of 5 minutes in total ends a watch (tomplus/kubernetes_asyncio#325).
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_TIMEOUT / 2, sock_read=seconds + WATCH_SLACK
        )
        begun = time.monotonic()
        code = 0
        try:
            response = await self._send("GET", "/api/v1/pods", query, timeout=timeout)
            code = response.status
            try:
                if code != 200:
                    raise from_status(code, message(await response.read()))
                async for line in lines(response.content):
                    yield watch_event(line)
            finally:
                response.close()
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise Unavailable(words(exc)) from exc
        finally:
            self._tell("WATCH", "pods", code=code, begun=begun)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        resource: str,
        query: list[tuple[str, str]] | None = None,
        body: JsonDict | None = None,
        content_type: str = "application/json",
    ) -> JsonDict:
        begun = time.monotonic()
        code = 0
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT, connect=REQUEST_TIMEOUT / 2)
        try:
            response = await self._send(
                method, path, query or [], timeout=timeout, body=body, content_type=content_type
            )
            code = response.status
            raw = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise Unavailable(words(exc)) from exc
        finally:
            self._tell("LIST" if query else method, resource, code=code, begun=begun)
        if not 200 <= code < 300:
            raise from_status(code, message(raw))
        return document(raw)

    async def _send(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        *,
        timeout: aiohttp.ClientTimeout,
        body: JsonDict | None = None,
        content_type: str = "application/json",
    ) -> Any:  # noqa: ANN401 - aiohttp.ClientResponse, unread
        return await self._client.call_api(
            path,
            method,
            query_params=query,
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=timeout,
        )

    def _tell(self, verb: str, resource: str, *, code: int, begun: float) -> None:
        if self._on_request is not None:
            self._on_request(verb, resource, code, time.monotonic() - begun)


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"
