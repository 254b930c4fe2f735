from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol

from agent.kube import errors, wire


def stream(*chunks: bytes) -> aiohttp.StreamReader:
    loop = asyncio.get_running_loop()
    reader = aiohttp.StreamReader(BaseProtocol(loop), 2**16, loop=loop)
    for chunk in chunks:
        reader.feed_data(chunk)
    reader.feed_eof()
    return reader


async def test_lines_survive_any_chunking() -> None:
    found = [line async for line in wire.lines(stream(b'{"a"', b":1}\n\n{", b"}\nhalf"))]
    assert found == [b'{"a":1}', b"{}"]


async def test_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LINE_LIMIT", 10)
    with pytest.raises(errors.Unavailable):
        [line async for line in wire.lines(stream(b"x" * 11))]


def test_error_events_raise() -> None:
    for reason, code, kind in (
        ("Expired", 410, errors.Expired),
        ("Expired", 500, errors.Expired),
        ("InternalError", 500, errors.Unavailable),
    ):
        line = json.dumps({"type": "ERROR", "object": {"code": code, "reason": reason}})
        with pytest.raises(kind):
            wire.watch_event(line.encode())
    assert wire.watch_event(b'{"type":"ADDED"}') == {"type": "ADDED"}


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"ERROR","object":5}',
        b'{"type":"ERROR","object":{"code":"x"}}',
        b'{"type":"ADDED","object":[1]}',
        b'{"type":"ADDED","object":{"metadata":5}}',
    ],
)
def test_an_odd_event_is_unavailable(line: bytes) -> None:
    with pytest.raises(errors.Unavailable):
        wire.watch_event(line)


@pytest.mark.parametrize("raw", [b"", b"<html>", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_unavailable(raw: bytes) -> None:
    with pytest.raises(errors.Unavailable):
        wire.document(raw)


def test_messages_and_words() -> None:
    assert wire.message(b'{"message":"no"}') == "no"
    assert wire.message(b"<html>") == "<html>"
    assert wire.words(TimeoutError()) == "TimeoutError"
    assert wire.words(OSError("x")) == "OSError: x"
