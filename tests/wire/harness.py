"""Foreign peers around a real agent process: kubelet's side is grpc-go, the driver's side varies.

    kubelet (grpc-go) ── agent (python -m agent run) ── driver (grpc-go, C-core, tonic, pydra, raw)

Every peer is a process that speaks JSON lines. A driver does what the name of the first claim of a
call says:

    ok         one device per claim
    meta       the request's x-text and x-bytes-bin come back as headers and trailers
    fail-N     the whole call fails with FAILED_PRECONDITION, N bytes of text, and details
    slow       answers when the caller has given up, and tells "cancelled"
    wait-N     answers after N ms
    large-N    an answer of about N bytes

and serves /example.v7.Later/Anything (unary echo) and /Chat (each message twice, then an error).
Written to its standard input, "goaway" ends it gracefully.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import yaml

from agent import names
from agent.core.model import ClaimRef, Metadata
from agent.demo import messages
from agent.demo.processes import KEPT, SOURCE
from tests.support.process import short_root
from tests.wire import build

DRIVER = "gpu.example.com"
PREPARE = f"/{names.SERVICE_V1}/{names.PREPARE}"
UNPREPARE = f"/{names.SERVICE_V1}/{names.UNPREPARE}"
HEALTH = names.HEALTH_METHODS[0]
LIMIT = 20.0  # seconds; a Python process on a busy machine needs some to start

OK, CANCELLED, UNKNOWN, DEADLINE_EXCEEDED = 0, 1, 2, 4
RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 8, 9
UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 12, 13, 14

T = TypeVar("T")
_numbers = itertools.count(1)


def until(condition: Callable[[], T], what: str, limit: float = LIMIT) -> T:
    """The first true value of the condition; AssertionError after `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"waited {limit:g} s for {what}"
        time.sleep(0.01)


def environment() -> dict[str, str]:
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    return {**kept, "PYTHONPATH": str(SOURCE)}


class Process:
    """A peer; `events` is what it said so far."""

    def __init__(self, *argv: str | Path, errors: Path, umask: int = -1) -> None:
        self.errors = errors
        self.events: list[dict[str, Any]] = []
        self._replies: dict[int, queue.Queue[dict[str, Any]]] = {}
        with errors.open("ab") as file:
            self._child = subprocess.Popen(
                [str(part) for part in argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=environment(),
                umask=umask,
                text=True,
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._in: IO[str] = self._child.stdin
        self._reader = threading.Thread(target=self._read, args=(self._child.stdout,), daemon=True)
        self._reader.start()

    def _read(self, out: IO[str]) -> None:
        for line in out:
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                if "id" in said:
                    self._replies[said["id"]].put(said)
                else:
                    self.events.append({"at": time.monotonic(), **said})

    def tell(self, line: str) -> None:
        self._in.write(line + "\n")
        self._in.flush()

    def ask(self, **command: Any) -> Pending:
        """Send a command; its reply can be waited for."""
        number = next(_numbers)
        self._replies[number] = queue.Queue()
        self.tell(json.dumps({"id": number, **command}))
        return Pending(number, self._replies[number])

    def wait_event(self, event: str, limit: float = LIMIT, **fields: Any) -> dict[str, Any]:
        """The newest event with these fields."""

        def found() -> list[dict[str, Any]]:
            fit = [
                e for e in self.events if e.get("event") == event and fields.items() <= e.items()
            ]
            assert fit or self.running, f"it ended:\n{self.text()[-3000:]}"
            return fit[-1:]

        return until(found, f"{event} {fields}; errors:\n{self.text()[-1000:]}", limit)[0]

    def wait_call(self, asked: ClaimRef) -> dict[str, Any]:
        """The newest prepare call for a claim; `body` is what came."""

        def found() -> list[dict[str, Any]]:
            calls = [one for one in self.events if one.get("event") == "call"]
            seen = [one | {"body": base64.b64decode(one["body"])} for one in calls]
            return [one for one in seen if asked.uid.encode() in one["body"]][-1:]

        return until(found, f"a call for {asked.name}")[0]

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    @property
    def pid(self) -> int:
        return self._child.pid

    def text(self) -> str:
        return self.errors.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def wait(self, limit: float = LIMIT) -> int:
        return self._child.wait(limit)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal, wait, and free everything."""
        if self.running:
            self.send(number)
        try:
            self.wait(15)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self.wait()
        with contextlib.suppress(OSError):
            self._in.close()
        self._reader.join(5)
        assert self._child.stdout is not None
        self._child.stdout.close()


@dataclass
class Pending:
    """A command whose reply is on its way."""

    number: int
    _queue: queue.Queue[dict[str, Any]]

    def reply(self, limit: float = LIMIT) -> dict[str, Any]:
        said = self._queue.get(timeout=limit)
        assert not said.get("error"), said["error"]
        return said


@dataclass
class Answer:
    """What grpc-go made of an answer."""

    code: int
    message: str
    messages: list[bytes]
    header: list[tuple[str, bytes]]
    trailer: list[tuple[str, bytes]]
    details: bytes
    read: dict[str, Any]
    seconds: float

    @classmethod
    def of(cls, said: dict[str, Any]) -> Answer:
        def pairs(key: str) -> list[tuple[str, bytes]]:
            return [(name, base64.b64decode(value)) for name, value in said[key]]

        return cls(
            code=said["code"],
            message=said["message"],
            messages=[base64.b64decode(each) for each in said["messages"] or []],
            header=pairs("header"),
            trailer=pairs("trailer"),
            details=base64.b64decode(said.get("details") or ""),
            read=said.get("read") or {},
            seconds=said["ms"] / 1000,
        )

    @property
    def claims(self) -> dict[str, Any]:
        """Entries by claim UID, as kubelet's stubs read them."""
        found: dict[str, Any] = self.read["claims"]
        return found


class Kubelet:
    """grpc-go with kubelet's dial options."""

    def __init__(self, errors: Path) -> None:
        self.process = Process(build.GO_BINARY, "kubelet", errors=errors)

    def register(self, path: Path, error: str | None = None) -> dict[str, Any]:
        """GetInfo and NotifyRegistrationStatus, as kubelet's plugin manager does it."""
        return self.process.ask(op="register", target=str(path), error=error).reply()

    def dial(self, endpoint: str, name: str = "c", idle: float = 0.0) -> None:
        asked = self.process.ask(op="dial", conn=name, target=endpoint, idleMs=int(idle * 1000))
        asked.reply()

    def state(self, name: str = "c") -> dict[str, Any]:
        return self.process.ask(op="state", conn=name).reply()

    def begin(
        self,
        method: str,
        *bodies: bytes,
        timeout: float = LIMIT,
        metadata: Metadata = (),
        stream: bool = False,
        conn: str = "c",
    ) -> Pending:
        """Begin a call."""
        latin1 = [(k, v.decode("latin-1") if isinstance(v, bytes) else v) for k, v in metadata]
        return self.process.ask(
            op="call",
            conn=conn,
            method=method,
            messages=[base64.b64encode(body).decode() for body in bodies],
            stream=stream,
            metadata=latin1,
            timeoutMs=int(timeout * 1000),
        )

    def call(self, method: str, *bodies: bytes, **options: Any) -> Answer:
        """One whole call."""
        return Answer.of(self.begin(method, *bodies, **options).reply(60))

    def prepare(self, *claims: ClaimRef, extra: bytes = b"", **options: Any) -> Answer:
        return self.call(PREPARE, request(*claims) + extra, **options)

    def cancel(self, call: Pending) -> None:
        self.process.ask(op="cancel", call=call.number).reply()


def claim(name: str) -> ClaimRef:
    """A claim that no call has had."""
    return ClaimRef("ns", f"uid-{next(_numbers)}", name)


def request(*claims: ClaimRef) -> bytes:
    return messages.claims_request(names.PREPARE, list(claims))


@dataclass
class Node:
    """A kubelet root with one agent, one grpc-go kubelet, and what a test adds."""

    root: Path
    config: dict[str, Any]
    kubelet: Kubelet
    driver: Process | None = None
    agent: Process | None = None
    ended: list[Process] = field(default_factory=list)

    @property
    def registry(self) -> Path:
        """Kubelet's."""
        return self.root / "plugins_registry"

    @property
    def drivers_registry(self) -> Path:
        """Where drivers register."""
        if self.config.get("registration") == "intake":
            return self.root / "plugins" / names.ENDPOINT_DIR / "intake"
        return self.registry

    @property
    def driver_sockets(self) -> tuple[Path, Path]:
        """Registration socket and endpoint of a driver."""
        data = self.root / "plugins" / DRIVER
        data.mkdir(parents=True, exist_ok=True)
        return self.drivers_registry / f"{DRIVER}-reg.sock", data / "dra.sock"

    def start_driver(self, peer: str, *, health: bool = False) -> Process:
        """Start a driver of that make and wait until it serves."""
        self.drivers_registry.mkdir(parents=True, exist_ok=True, mode=0o700)
        commands: dict[str, tuple[str | Path, ...]] = {
            "go": (build.GO_BINARY, "driver"),
            "ccore": (sys.executable, build.HERE / "drivers" / "ccore.py"),
            "tonic": (build.RUST_BINARY,),
            "pydra": (build.PYDRA_PYTHON, build.HERE / "drivers" / "pydra_driver.py"),
        }
        rest = ["health"] if health else []
        argv = (*commands[peer], DRIVER, *self.driver_sockets, *rest)
        self.driver = Process(*argv, errors=self.root / "driver.err")
        self.ended.append(self.driver)
        self.driver.wait_event("ready")
        return self.driver

    def start_agent(self, *, umask: int = -1, wait: bool = True) -> Process:
        """Start the agent; wait until its registration socket is there."""
        head = {"apiVersion": names.CONFIG_API_VERSION, "kind": names.CONFIG_KIND}
        file = self.root / "agent.yaml"
        file.write_text(yaml.safe_dump({**head, "log": {"format": "json"}, **self.config}))
        argv = (
            *(sys.executable, "-m", "agent", "run", "--config", file, "--node-name", "node-a"),
            *("--kubelet-root", self.root, "--http-listen", "127.0.0.1:0"),
        )
        self.agent = Process(*argv, errors=self.root / "agent.err", umask=umask)
        self.ended.append(self.agent)
        if wait:
            until(self.agent_sockets, "the agent's registration socket")
        return self.agent

    def agent_sockets(self) -> list[Path]:
        """The agent's registration sockets, oldest first."""
        found: list[tuple[int, Path]] = []
        for path in self.registry.glob(f"{names.SOCKET_PREFIX}*.sock"):
            with contextlib.suppress(FileNotFoundError):  # withdrawn since it was listed
                found.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(found)]

    def connect(self, **dial: Any) -> dict[str, Any]:
        """Register the agent's newest socket with kubelet and dial its endpoint."""
        told = until(self.register_newest, "a registration of the agent")
        assert told["code"] == OK, told
        self.kubelet.dial(told["endpoint"], **dial)
        return told

    def register_newest(self) -> dict[str, Any]:
        """What kubelet was told; nothing where a renewal took the socket away meanwhile."""
        for path in self.agent_sockets()[-1:]:
            try:
                return self.kubelet.register(path)
            except AssertionError:
                if path.exists():
                    raise
        return {}

    def log(self) -> list[dict[str, Any]]:
        """The agent's log."""
        found = []
        for line in (self.root / "agent.err").read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def http(self, path: str) -> str:
        """One page of the agent's HTTP server."""
        lines = until(
            lambda: [one for one in self.log() if one.get("msg") == "http listening"],
            "the HTTP server",
        )
        url = f"http://{lines[-1]['host']}:{lines[-1]['port']}{path}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            text: str = answer.read().decode()
        return text

    def state(self) -> dict[str, Any]:
        """/debug/state."""
        found: dict[str, Any] = json.loads(self.http("/debug/state"))
        return found

    def metric(self, name: str) -> float:
        """Sum of a metric's series of the driver."""
        found = 0.0
        for line in self.http("/metrics").splitlines():
            if line.startswith(name + "{") and DRIVER in line:
                found += float(line.rpartition(" ")[2])
        return found


@contextlib.contextmanager
def node(*, root: Path | None = None, **config: Any) -> Iterator[Node]:
    """A node without driver and agent; what a test started is ended."""
    with contextlib.ExitStack() as stack:
        root = root or stack.enter_context(short_root())
        for name in ("plugins_registry", "plugins"):
            (root / name).mkdir(parents=True, exist_ok=True, mode=0o750)
        # One attempt, for these tests are about what passes, not about repeating it.
        config = {"retry": {"ambiguousAttempts": 1}, "report": {"enabled": False}, **config}
        kubelet = Kubelet(root / "kubelet.err")
        made = Node(root, config, kubelet)
        try:
            yield made
        finally:
            for process in (*reversed(made.ended), kubelet.process):
                process.end()
