"""Health, metrics and state over HTTP. With `connections` the only import of aiohttp.web here.

Answers are read-only. Probes follow the format of Kubernetes' own components: `ok`, or one line
`[+]name ok` / `[-]name failed: reason` per check with `?verbose`.
"""

from __future__ import annotations

import asyncio
import errno
import html
import ipaddress
import json
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from aiohttp import web

import agent
from agent import names
from agent.core.text import clean
from agent.errors import UserError
from agent.observe import connections, metrics

log = logging.getLogger(__name__)
# Whoever reaches the port could fill the log: aiohttp tells each broken request with a traceback.
_strangers = logging.getLogger(f"{__name__}.strangers")
_strangers.setLevel(logging.CRITICAL)

PROBE_LIMIT = 2.0
"""Seconds that all checks of one probe may take together."""

_PATHS = {
    "/livez": "is the agent alive (dials its own sockets)",
    "/readyz": "does the agent listen and watch",
    "/healthz": "same as /livez, for older charts",
    "/metrics": "Prometheus metrics",
    "/debug/state": "drivers, calls and verdicts as JSON; from this pod or host only",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a probe. A failed check that does not `affect` is shown, but the probe is ok."""

    name: str
    ok: bool
    text: str = ""
    affects: bool = True


class Probes(Protocol):
    """Where the answers come from. Whatever it raises fails the one request."""

    async def live(self) -> Sequence[Check]:
        """Checks that make kubelet restart the agent when they fail."""

    def ready(self) -> Sequence[Check]:
        """Checks that take the agent out of the ready count."""

    def state(self) -> dict[str, object]:
        """Everything for /debug/state; values that JSON or dataclasses can show."""

    def metrics(self) -> bytes:
        """The Prometheus exposition."""


def parse_listen(listen: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port` or `:port` (all addresses). Raises UserError."""
    host, colon, port = listen.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    number = int(port) if port.isascii() and port.isdigit() else -1
    if not colon or not 0 <= number <= 65535 or (":" in host and bare == host):
        shown = clean(listen, 80)
        raise UserError(f'http.listen: "{shown}" is not host:port; write it as 127.0.0.1:9880')
    return bare, number


class Web:
    """The HTTP server. `listen` as in the config; port 0 takes a free one."""

    def __init__(self, listen: str, probes: Probes) -> None:
        self._listen = listen
        self._host, self._port = parse_listen(listen)
        self._probes = probes
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen; return the port. Raises UserError when the address cannot be had."""
        app = web.Application(middlewares=[_safe])
        app.on_response_prepare.append(_no_server_header)
        app.router.add_get("/", self._index)
        for path in ("/livez", "/healthz"):
            app.router.add_get(path, self._live)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/debug/state", self._state)
        runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=connections.IDLE,
            logger=_strangers,
            shutdown_timeout=1.0,
        )
        await runner.setup()
        assert runner.server is not None
        factory = connections.Connections(runner.server)
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                factory, self._host or None, self._port
            )
        except OSError as error:
            await runner.cleanup()
            raise UserError(_bind_problem(self._listen, error)) from error
        self._runner = runner
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop; requests in flight get one second."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _live(self, request: web.Request) -> web.Response:
        name = request.path.strip("/")
        try:
            async with asyncio.timeout(PROBE_LIMIT):
                checks = await self._probes.live()
        except TimeoutError:
            checks = [Check("live", ok=False, text=f"no answer within {PROBE_LIMIT:g} s")]
        return _probe(name, checks, verbose="verbose" in request.query)

    async def _ready(self, request: web.Request) -> web.Response:
        return _probe("readyz", self._probes.ready(), verbose="verbose" in request.query)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._probes.metrics(), headers={"Content-Type": metrics.CONTENT_TYPE}
        )

    async def _state(self, request: web.Request) -> web.Response:
        if not _local(request.remote):
            # It names claims of all namespaces; kubectl port-forward arrives from loopback.
            return web.Response(status=403, text="only from the pod or host itself\n")
        state = msgspec.to_builtins(self._probes.state(), str_keys=True, enc_hook=str)
        # ASCII: paths may hold bytes that are no UTF-8, or what steers a terminal.
        return web.json_response(text=json.dumps(state, indent=2) + "\n")

    async def _index(self, request: web.Request) -> web.Response:
        checks = self._probes.ready()
        rows = "".join(f'<li><a href="{p}">{p}</a> {text}</li>' for p, text in _PATHS.items())
        lines = html.escape("\n".join(_line(check) for check in checks))
        title = html.escape(f"{names.PRODUCT} {agent.__version__}")
        return web.Response(
            content_type="text/html",
            charset="utf-8",
            headers={"Content-Security-Policy": "default-src 'none'"},
            text=f"<!doctype html><title>{title}</title><h1>{title}</h1>"
            f"<ul>{rows}</ul><pre>{lines}</pre>\n",
        )


def _line(check: Check) -> str:
    name, text = clean(check.name, 200), clean(check.text, 500)
    if check.ok:
        return f"[+]{name} ok" + (f": {text}" if text else "")
    return f"[-]{name} failed: {text or 'no reason given'}" + (
        "" if check.affects else " (warning)"
    )


def _probe(name: str, checks: Sequence[Check], *, verbose: bool) -> web.Response:
    passed = all(check.ok or not check.affects for check in checks)
    if passed and not verbose:
        return web.Response(text="ok")
    lines = [_line(check) for check in checks]
    lines.append(f"{name} check {'passed' if passed else 'failed'}")
    return web.Response(status=200 if passed else 503, text="\n".join(lines) + "\n")


def _local(remote: str | None) -> bool:
    try:
        return ipaddress.ip_address(remote or "").is_loopback
    except ValueError:
        return False


def _bind_problem(listen: str, error: OSError) -> str:
    where = f'http.listen: cannot listen on "{clean(listen, 80)}"'
    if error.errno == errno.EADDRINUSE:
        return f"{where}: in use by another program; choose another port, or 0 for a free one"
    if error.errno == errno.EACCES:
        return f"{where}: not permitted; choose a port above 1023"
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return f"{where}: {clean(reason, 200)}; use an address of this host"


@web.middleware
async def _safe(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn a failing probe into a failed answer that names the error's type only."""
    try:
        return await handler(request)
    except (web.HTTPException, asyncio.CancelledError):
        raise
    except Exception as error:  # the border: one bad answer must not end the server
        log.exception("http request for %s failed", request.path)
        return web.Response(status=500, text=f"[-]internal failed: {type(error).__name__}\n")


async def _no_server_header(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.pop("Server", None)
