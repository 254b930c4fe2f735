"""Log lines on standard error, as text or as one JSON object each.

What a call is about (op id, driver, trace id) is bound once to the call's context; every line
logged within it, in whatever module, carries it. Strings may come from drivers: each is made one
safe line and bounded. Writing never waits: if whoever reads standard error has stopped, lines
are dropped and counted, for a call must not hang because a log disk is full.
"""

from __future__ import annotations

import json
import logging
import os
import random
import select
import time
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Literal

from agent.core.text import clean

LINE_LIMIT = 4096
"""Bytes. A pipe that polls writable takes this much at once (PIPE_BUF), so no write blocks."""

_MESSAGE_LIMITS = (1500, 600, 150)  # characters; the next one when a line came out too long
_VALUE_LIMIT = 256
_LIST_LIMIT = 8
_THROTTLE_SECONDS = 60.0
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_context: ContextVar[Mapping[str, str]] = ContextVar("log_context", default=MappingProxyType({}))


def new_op_id() -> str:
    """8 hex digits that mark the lines of one call; unique enough for the lines of one day."""
    return f"{random.getrandbits(32):08x}"


def bind(**keys: str) -> None:
    """Add keys (`op`, `driver`, `trace_id`) to every line of the current task from here on."""
    _context.set({**_context.get(), **{k: v for k, v in keys.items() if v}})


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Context first, then what the line itself gave as `extra`."""
    fields: dict[str, object] = dict(_context.get())
    fields.update((k, v) for k, v in vars(record).items() if k not in _OWN)
    return {clean(k, 64): _value(v) for k, v in fields.items()}


def _value(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [clean(str(item), 128) for item in value[:_LIST_LIMIT]]
    return clean(str(value), _VALUE_LIMIT)


def _stamp(record: logging.LogRecord) -> str:
    """RFC 3339, UTC, milliseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def _trace(record: logging.LogRecord, limit: int) -> str:
    """The end of a traceback: the last frames and the error itself are there."""
    if not record.exc_info:
        return ""
    text = logging.Formatter().formatException(record.exc_info)
    return text if len(text) <= limit else "…" + text[-limit:]


class JsonFormatter(logging.Formatter):
    """One object per line: ts, severity, logger, msg, then context, extras and `exc`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end, at most LINE_LIMIT - 1 bytes."""
        head = {"ts": _stamp(record), "severity": record.levelname, "logger": record.name}
        message, fields = record.getMessage(), _fields(record)
        for limit in _MESSAGE_LIMITS:
            entry: dict[str, object] = {**fields, **head, "msg": clean(message, limit)}
            if record.exc_info:
                entry["exc"] = "\n".join(
                    clean(line, 300) for line in _trace(record, limit).splitlines()
                )
            order = (*head, "msg", *fields, "exc")
            line = json.dumps({k: entry[k] for k in order if k in entry}, ensure_ascii=False)
            if len(line.encode("utf-8", "replace")) < LINE_LIMIT:
                return line
        return json.dumps({**head, "msg": clean(message, 150), "cut": True})


class TextFormatter(logging.Formatter):
    """`ts LEVEL logger: msg key=value …`; a traceback follows in lines that begin with `  | `."""

    def format(self, record: logging.LogRecord) -> str:
        """The line or lines, without the last end, at most LINE_LIMIT - 1 bytes."""
        pairs = "".join(f" {key}={_plain(value)}" for key, value in _fields(record).items())
        message = clean(record.getMessage(), _MESSAGE_LIMITS[0])
        line = f"{_stamp(record)} {record.levelname:<7} {record.name}: {message}{pairs}"
        for frame in _trace(record, 1500).splitlines():
            line += "\n  | " + clean(frame, 300)
        data = line.encode("utf-8", "replace")
        return data[: LINE_LIMIT - 1].decode("utf-8", "ignore")


def _plain(value: object) -> str:
    text = ",".join(value) if isinstance(value, list) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=') else text


class Handler(logging.Handler):
    """Writes whole lines to a file descriptor, never waits, never raises.

    `dropped` counts the lines that could not be written; the next one that can says so.
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.dropped = 0
        self._fd = fd
        self._said = 0
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            line = self.format(record)
            if self.dropped > self._said and self._ready():
                missing = self.dropped - self._said
                self._said = self.dropped
                note = logging.makeLogRecord(
                    {
                        "name": __name__,
                        "levelname": "WARNING",
                        "levelno": logging.WARNING,
                        "msg": "%d log lines dropped: standard error took none",
                        "args": (missing,),
                    }
                )
                self._write(self.format(note))
            self._write(line)
        except Exception:  # noqa: BLE001  a log line must never end what it tells about
            self.dropped += 1

    def _ready(self) -> bool:
        return bool(self._poll.poll(0))

    def _write(self, line: str) -> None:
        if not self._ready():
            self.dropped += 1
            return
        os.write(self._fd, line.encode("utf-8", "replace") + b"\n")


class Throttle(logging.Filter):
    """Lets one template of a chatty library through per minute; our own lines always pass.

    The OTLP exporter logs every retry of every batch while a collector is away.
    """

    def __init__(self, *prefixes: str) -> None:
        super().__init__()
        self._prefixes = prefixes
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True when the line is to be written."""
        if not record.name.startswith(self._prefixes):
            return True
        key, now = (record.name, str(record.msg)[:80]), time.monotonic()
        if now - self._last.get(key, -_THROTTLE_SECONDS) < _THROTTLE_SECONDS:
            return False
        if len(self._last) > 200:
            self._last.clear()
        self._last[key] = now
        return True


def setup(level: str, format: Literal["text", "json"], *, fd: int = 2) -> Handler:
    """Send all logging to standard error. Replaces what was set up before; returns the handler."""
    handler = Handler(fd)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    handler.addFilter(Throttle("opentelemetry", "urllib3"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if level != "debug":
        # These tell each request at INFO or each frame at DEBUG.
        for chatty in ("aiohttp", "asyncio", "urllib3", "opentelemetry", "kubernetes_asyncio"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
    return handler
