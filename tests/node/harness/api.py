"""A small synchronous client of the Kubernetes API, for what tests do and look at as an admin."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

Object = dict[str, Any]

_PATCH_TYPES = {
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
NOT_FOUND, CONFLICT = 404, 409


class ApiError(Exception):
    """An answer that is not 2xx."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason


class Api:
    """JSON over one connection per request: slower than a pool, but a restart cannot confuse it."""

    def __init__(
        self,
        server: str,
        ca: Path,
        *,
        client: tuple[Path, Path] | None = None,
        token: str = "",
        timeout: float = 30,
    ) -> None:
        self.server = server
        self._timeout = timeout
        self._address = urlsplit(server).netloc
        self._tls = ssl.create_default_context(cafile=str(ca))
        if client:
            self._tls.load_cert_chain(*client)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def raw(self, method: str, path: str, body: Any = None, kind: str = "") -> tuple[int, bytes]:
        """One request; (status, body) whatever the status is."""
        connection = http.client.HTTPSConnection(
            self._address, timeout=self._timeout, context=self._tls
        )
        headers = {"Accept": "application/json", **self._headers}
        if body is not None:
            headers["Content-Type"] = _PATCH_TYPES.get(kind, "application/json")
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()

    def request(
        self, method: str, path: str, body: Any = None, kind: str = "", **query: str
    ) -> Object:
        if query:
            path = f"{path}?{urlencode(query)}"
        status, content = self.raw(method, path, body, kind)
        try:
            answer: Object = json.loads(content or b"{}")
        except ValueError:
            answer = {"message": content.decode(errors="replace")}
        if not 200 <= status < 300:
            raise ApiError(status, answer.get("reason", ""), answer.get("message", ""))
        return answer

    def get(self, path: str, **query: str) -> Object:
        return self.request("GET", path, **query)

    def find(self, path: str) -> Object | None:
        """Like get, but None when there is no such object."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Object]:
        found: list[Object] = self.get(path, **query)["items"]
        return found

    def post(self, path: str, body: Object) -> Object:
        return self.request("POST", path, body)

    def put(self, path: str, body: Object) -> Object:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Any, kind: str = "strategic", **query: str) -> Object:
        """`kind` is strategic, merge, json or apply (server-side apply)."""
        return self.request("PATCH", path, body, kind, **query)

    def delete(self, path: str, *, grace: int | None = None) -> None:
        """Deletes; an object that is already gone is no error."""
        query = {} if grace is None else {"gracePeriodSeconds": str(grace)}
        try:
            self.request("DELETE", path, **query)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise

    def create(self, obj: Object) -> Object:
        """Posts an object of any kind to where it belongs."""
        return self.post(self.collection(obj), obj)

    def apply(self, obj: Object, **query: str) -> Object:
        """Server-side apply of an object of any kind, as `kubectl apply --server-side` does."""
        path = f"{self.collection(obj)}/{quote(obj['metadata']['name'])}"
        return self.patch(path, obj, "apply", fieldManager="tests", force="true", **query)

    def path(self, obj: Object) -> str:
        return f"{self.collection(obj)}/{quote(obj['metadata']['name'])}"

    def collection(self, obj: Object) -> str:
        """The path of the list an object belongs to, found by API discovery."""
        version, kind = obj["apiVersion"], obj["kind"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, kind) not in self._resources:
            for resource in self.get(base)["resources"]:
                if "/" not in resource["name"]:
                    key = (version, resource["kind"])
                    self._resources[key] = (resource["name"], resource["namespaced"])
        plural, namespaced = self._resources[version, kind]
        if not namespaced:
            return f"{base}/{plural}"
        return f"{base}/namespaces/{obj['metadata'].get('namespace', 'default')}/{plural}"

    # Short names for what nearly every test looks at.

    def pod(self, namespace: str, name: str) -> Object:
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def phase(self, namespace: str, name: str) -> str:
        return str(self.pod(namespace, name)["status"].get("phase", ""))

    def condition(self, namespace: str, name: str, kind: str) -> Object | None:
        """One condition of a pod by its type."""
        conditions = self.pod(namespace, name)["status"].get("conditions") or []
        return next((found for found in conditions if found["type"] == kind), None)

    def events(self, namespace: str, name: str, reason: str = "") -> list[Object]:
        """Events about an object, of one reason where given; `count` is in series or count."""
        selector = f"involvedObject.name={name}" + (f",reason={reason}" if reason else "")
        return self.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selector)

    def claims(self, namespace: str) -> list[Object]:
        return self.items(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")

    def slices(self, driver: str) -> list[Object]:
        selector = f"spec.driver={driver}"
        return self.items("/apis/resource.k8s.io/v1/resourceslices", fieldSelector=selector)

    def taint_rules(self) -> list[Object]:
        """None where the API server has no such thing, which is before 1.37."""
        found = self.find("/apis/resource.k8s.io/v1/devicetaintrules")
        return found["items"] if found else []

    def token(self, namespace: str, account: str, *, pod: Object, seconds: int = 3600) -> str:
        """A service account token bound to a pod, as the kubelet mounts it into that pod."""
        metadata = pod["metadata"]
        bound = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        spec = {"audiences": [], "expirationSeconds": seconds, "boundObjectRef": bound}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self.post(path, request)["status"]["token"])
