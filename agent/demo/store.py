"""The objects of the demo's API server: versions, preconditions, watches. No HTTP here.

Error codes are those measured on a real API server: a `metadata.uid` that differs is 422, a
stale `resourceVersion` is 409.
"""

from __future__ import annotations

import asyncio
import copy
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agent.demo.merge import strategic_merge

Object = dict[str, Any]
Key = tuple[str, str, str]  # kind, namespace, name


class ApiError(Exception):
    """An answer of the API server that is not 2xx."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the history: `kind` is ADDED, MODIFIED or DELETED, `wall` unix seconds."""

    version: int
    kind: str
    key: Key
    object: Object
    by: str
    wall: float = field(default_factory=time.time)


def timestamp() -> str:
    """Now as the API writes times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """All objects, and everything that ever happened to them."""

    def __init__(self) -> None:
        self.history: list[Change] = []
        self._objects: dict[Key, Object] = {}
        self._version = 1000
        self._changed = asyncio.Event()

    @property
    def version(self) -> int:
        """resourceVersion of the newest change."""
        return self._version

    def create(self, kind: str, obj: Object, *, by: str = "user") -> Object:
        """Add an object; uid, resourceVersion and creationTimestamp are filled in. 409 if there."""
        new = copy.deepcopy(obj)
        meta = new.setdefault("metadata", {})
        key = (kind, meta.get("namespace", ""), meta["name"])
        if key in self._objects:
            raise ApiError(409, "AlreadyExists", f'{kind} "{key[2]}" already exists')
        meta.setdefault("uid", str(uuid.uuid4()))
        meta["creationTimestamp"] = timestamp()
        return self._put("ADDED", key, new, by)

    def get(self, kind: str, namespace: str, name: str) -> Object:
        """One object, a copy. 404 if it is not there."""
        found = self._objects.get((kind, namespace, name))
        if found is None:
            raise ApiError(404, "NotFound", f'{kind} "{name}" not found')
        return copy.deepcopy(found)

    def list(self, kind: str, namespace: str = "") -> list[Object]:
        """Objects of a kind, of one namespace or of all, copies, by name."""
        return [
            copy.deepcopy(obj)
            for key, obj in sorted(self._objects.items())
            if key[0] == kind and namespace in ("", key[1])
        ]

    def update(
        self, key: Key, change: Callable[[Object], None], *, by: str = "controller"
    ) -> Object:
        """Change an object in place, without preconditions."""
        new = self.get(*key)
        change(new)
        return self._put("MODIFIED", key, new, by)

    def patch_status(self, key: Key, patch: Object, *, by: str = "agent") -> Object:
        """PATCH of `pods/status`, strategic merge: status, labels and annotations, nothing else."""
        old = self.get(*key)
        meta = patch.get("metadata") or {}
        if meta.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise ApiError(
                422, "Invalid", f'{key[0]} "{key[2]}" is invalid: metadata.uid: field is immutable'
            )
        if str(meta.get("resourceVersion", old["metadata"]["resourceVersion"])) != str(
            old["metadata"]["resourceVersion"]
        ):
            raise ApiError(409, "Conflict", f'the object "{key[2]}" has been modified')
        allowed = {k: v for k, v in meta.items() if k in ("annotations", "labels", "finalizers")}
        new = strategic_merge(old, {"metadata": allowed, "status": patch.get("status") or {}})
        return self._put("MODIFIED", key, new, by) if new != old else old

    def delete(self, key: Key, *, grace: int = 30, by: str = "user") -> None:
        """Mark a pod for deletion; its kubelet removes it when it is done."""

        def mark(obj: Object) -> None:
            obj["metadata"].setdefault("deletionTimestamp", timestamp())
            obj["metadata"]["deletionGracePeriodSeconds"] = grace

        self.update(key, mark, by=by)

    def remove(self, key: Key, *, by: str = "kubelet") -> None:
        """Take an object away at once."""
        old = self.get(*key)
        del self._objects[key]
        self._record("DELETED", key, old, by)

    async def watch(self, kind: str, since: int) -> AsyncIterator[Change]:
        """Changes of a kind after `since`, for ever."""
        position = 0
        while True:
            changed = self._changed
            while position < len(self.history):
                change = self.history[position]
                position += 1
                if change.version > since and change.key[0] == kind:
                    yield change
            await changed.wait()

    def _put(self, what: str, key: Key, obj: Object, by: str) -> Object:
        self._objects[key] = obj
        self._record(what, key, obj, by)
        return copy.deepcopy(obj)

    def _record(self, what: str, key: Key, obj: Object, by: str) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.history.append(Change(self._version, what, key, copy.deepcopy(obj), by))
        self._changed.set()
        self._changed = asyncio.Event()
