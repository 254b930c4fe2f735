"""Reads what comes from the API server: JSON, Status bodies, watch lines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from agent.kube.errors import Expired, KubeError, Unavailable, from_status

JsonDict = dict[str, Any]

LINE_LIMIT = 8 * 1024 * 1024
"""Bytes of one watch event; etcd takes 1.5 MiB per object."""


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Split into lines without aiohttp's limit on a line's length, but with our own."""
    buffer = bytearray()
    async for chunk in content.iter_any():
        buffer += chunk
        *whole, rest = buffer.split(b"\n")
        buffer = bytearray(rest)
        if len(buffer) > LINE_LIMIT:
            raise Unavailable(f"watch event above {LINE_LIMIT} bytes")
        for line in whole:
            if line:
                yield bytes(line)


def watch_event(line: bytes) -> JsonDict:
    """Parse one watch event. Raises what an event of type ERROR stands for."""
    event = document(line)
    status = event.get("object") or {}
    if not isinstance(status, dict) or not isinstance(status.get("metadata") or {}, dict):
        raise Unavailable("the answer is no watch event")
    if event.get("type") == "ERROR":
        code = status.get("code")
        code = code if isinstance(code, int) and code else 500
        error = from_status(code, str(status.get("message") or "watch error"))
        raise Expired(str(error), code) if status.get("reason") == "Expired" else error
    return event


def page_of(answer: JsonDict) -> tuple[list[JsonDict], JsonDict]:
    """Items and metadata of one page of a list; anything else is Unavailable."""
    items, meta = answer.get("items") or [], answer.get("metadata") or {}
    good = isinstance(meta, dict) and isinstance(items, list)
    if not good or not all(isinstance(item, dict) for item in items):
        raise Unavailable("the answer is no list")
    return items, meta


def document(raw: bytes) -> JsonDict:
    """Parse a JSON object; anything else is Unavailable (a load balancer's page, say)."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise Unavailable("the answer is not JSON") from exc
    if not isinstance(value, dict):
        raise Unavailable("the answer is not a JSON object")
    return value


def message(raw: bytes) -> str:
    """Return the message of the API's Status body, or the start of whatever it is."""
    try:
        return str(document(raw).get("message") or "")
    except KubeError:
        return raw[:200].decode(errors="replace")


def words(exc: BaseException) -> str:
    """Return an exception as text; many of aiohttp's have none of their own."""
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
