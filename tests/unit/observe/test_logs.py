from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
from collections.abc import Iterator
from typing import Literal

import pytest

from agent.observe import logs

log = logging.getLogger("agent.test")


class Pipe:
    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)

    def lines(self) -> list[str]:
        try:
            return os.read(self.read_end, 1 << 20).decode().splitlines()
        except BlockingIOError:
            return []


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("aiohttp", "opentelemetry")}
    made = Pipe()
    yield made
    root.handlers[:] = before
    root.setLevel(level)
    for name, old in levels.items():
        logging.getLogger(name).setLevel(old)
    os.close(made.read_end)
    os.close(made.write_end)


def set_up(pipe: Pipe, format: Literal["text", "json"] = "json", level: str = "info") -> None:
    logs.setup(level, format, fd=pipe.write_end)


async def test_json_has_stable_keys_and_the_calls_context(pipe: Pipe) -> None:
    set_up(pipe)
    logs.bind(op="0000abcd", driver="gpu.example.com", trace_id="ff")
    log.info("prepare %s", "answered", extra={"claims": 2, "seconds": 0.5, "who": None})
    entry = json.loads(pipe.lines()[0])
    assert list(entry)[:4] == ["ts", "severity", "logger", "msg"]
    assert entry["severity"] == "INFO"
    assert entry["msg"] == "prepare answered"
    assert (entry["op"], entry["driver"], entry["trace_id"]) == (
        "0000abcd",
        "gpu.example.com",
        "ff",
    )
    assert (entry["claims"], entry["seconds"], entry["who"]) == (2, 0.5, None)
    assert entry["ts"].endswith("Z")
    assert len(entry["ts"]) == len("2026-01-01T00:00:00.000Z")


async def test_bind_holds_for_one_task_only(pipe: Pipe) -> None:
    set_up(pipe)

    async def call(op: str) -> None:
        logs.bind(op=op)
        await asyncio.sleep(0)
        log.info("x")

    await asyncio.gather(call("a"), call("b"))
    log.info("y")
    assert [json.loads(line).get("op") for line in pipe.lines()] == ["a", "b", None]


@pytest.mark.parametrize("format", ["text", "json"])
def test_hostile_text_is_one_bounded_line(pipe: Pipe, format: Literal["text", "json"]) -> None:
    set_up(pipe, format)
    evil = "a\n2026 ERROR forged\x1b[2J\u202e\ud800" + "é" * 100_000
    log.info("driver said %s", evil, extra={"text": evil, "k\ney": "v"})
    lines = pipe.lines()
    assert len(lines) == 1
    assert "\x1b" not in lines[0]
    assert "\u202e" not in lines[0]
    assert len(lines[0].encode()) < logs.LINE_LIMIT
    if format == "json":
        assert json.loads(lines[0])["msg"].startswith("driver said a; 2026 ERROR forged")


def test_json_that_swells_by_escaping_is_still_json(pipe: Pipe) -> None:
    set_up(pipe)
    log.info("%s", '"\\' * 5000, extra={f"k{i}": '"' * 250 for i in range(30)})
    entry = json.loads(pipe.lines()[0])
    assert entry["cut"] is True


@pytest.mark.parametrize("format", ["text", "json"])
def test_traceback_cannot_forge_lines(pipe: Pipe, format: Literal["text", "json"]) -> None:
    set_up(pipe, format)
    try:
        raise ValueError("first\n2026-01-01T00:00:00.000Z ERROR agent: forged")
    except ValueError:
        log.exception("failed")
    lines = pipe.lines()
    if format == "json":
        assert len(lines) == 1
        assert "ValueError: first" in json.loads(lines[0])["exc"]
    else:
        assert all(line.startswith("  | ") for line in lines[1:])
        assert len(lines) > 2


def test_text_quotes_values_with_blanks(pipe: Pipe) -> None:
    set_up(pipe, "text")
    log.warning("m", extra={"a": "x y", "b": 'q"=', "c": "", "d": 3})
    assert pipe.lines()[0].endswith('WARNING agent.test: m a="x y" b="q\\"=" c="" d=3')


def test_a_reader_that_stopped_costs_lines_not_time(pipe: Pipe) -> None:
    fcntl.fcntl(pipe.write_end, fcntl.F_SETPIPE_SZ, 16384)
    handler = logs.setup("info", "json", fd=pipe.write_end)
    for _ in range(50):
        log.info("x" * 1000)
    assert handler.dropped > 0
    assert pipe.lines()
    dropped = handler.dropped
    log.info("again")
    entries = [json.loads(line) for line in pipe.lines()]
    assert entries[0]["msg"].startswith(f"{dropped} log lines dropped")
    assert entries[1]["msg"] == "again"


def test_a_line_that_cannot_be_made_is_no_crash(pipe: Pipe) -> None:
    set_up(pipe)
    log.info("%d", "not a number")
    assert pipe.lines() == []


def test_a_chatty_library_is_heard_once_a_minute(pipe: Pipe) -> None:
    set_up(pipe)
    for _ in range(5):
        logging.getLogger("opentelemetry.exporter").error("collector away, %s", "retrying")
        log.error("ours")
    messages = [json.loads(line)["msg"] for line in pipe.lines()]
    assert messages.count("collector away, retrying") == 1
    assert messages.count("ours") == 5


def test_levels(pipe: Pipe) -> None:
    set_up(pipe, "text", "warning")
    log.info("no")
    log.warning("yes")
    assert len(pipe.lines()) == 1


def test_op_ids_are_eight_hex_digits() -> None:
    ids = {logs.new_op_id() for _ in range(100)}
    assert len(ids) > 95
    assert all(len(op) == 8 and int(op, 16) >= 0 for op in ids)


@pytest.mark.parametrize("format", ["text", "json"])
def test_lists_stay_lists_and_short(pipe: Pipe, format: Literal["text", "json"]) -> None:
    set_up(pipe, format)
    log.info("m", extra={"claims": [f"ns/c{i}\n" for i in range(500)]})
    [line] = pipe.lines()
    if format == "json":
        assert json.loads(line)["claims"] == [f"ns/c{i}" for i in range(8)]
    else:
        assert line.endswith("claims=" + ",".join(f"ns/c{i}" for i in range(8)))
