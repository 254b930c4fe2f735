"""Socket files: lengths, modes, what a killed agent leaves, and never one without a listener."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import names
from agent.core import paths
from tests.support.process import short_root
from tests.wire.harness import DRIVER, OK, Node, claim, node, until

pytestmark = pytest.mark.timeout(60)

LONGEST = 107  # bytes; sun_path has 108 with its NUL (unix(7))


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
        sock.settimeout(2)
        sock.connect(str(path))
        return True
    return False


class Observer:
    """Connects to every published socket all the time, as fast as it can.

    `deserted` are sockets whose file was there, the very same one, before and after a refusal.
    """

    def __init__(self, registry: Path) -> None:
        self.looks = 0
        self.seen: set[tuple[str, int]] = set()
        self.deserted: list[str] = []
        self._registry = registry
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            self.looks += 1
            for entry in os.scandir(self._registry):
                if entry.name.startswith(names.SOCKET_PREFIX):
                    self._look(entry.path)

    def _look(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            before = os.stat(path).st_ino
            self.seen.add((path, before))
            with socket.socket(socket.AF_UNIX) as sock:
                try:
                    sock.connect(path)
                except ConnectionRefusedError:
                    if os.stat(path).st_ino == before:
                        self.deserted.append(path)


def published(node: Node) -> int:
    """Generations that the agent has made so far."""
    return sum("published: " in str(line.get("msg")) for line in node.log())


def test_sockets_that_go_while_they_are_listed_are_not_there() -> None:
    with node() as it:
        there = it.registry / f"{names.SOCKET_PREFIX}there.sock"
        there.touch()
        # Listed, and gone when it is asked for its time.
        gone = it.registry / f"{names.SOCKET_PREFIX}gone.sock"
        gone.symlink_to("nowhere")
        assert gone in it.registry.glob("*.sock")
        assert it.agent_sockets() == [there]


def test_a_published_socket_always_has_a_listener() -> None:
    """At the start, in renewals, when the driver leaves and comes back, and at SIGTERM."""
    quick = {
        "kind": "overlay",
        "overlay": {"renewDelay": "50ms", "renewAgain": ["100ms", "200ms"], "retireAfter": "300ms"},
    }
    with node(registration=quick, drivers={"driverAbsenceHold": "200ms"}) as it:
        it.start_driver("go")
        with Observer(it.registry) as observer:
            agent = it.start_agent()
            for _ in range(4):
                it.connect()
                assert it.driver is not None
                it.driver.end()
                for path in it.driver_sockets:
                    path.unlink(missing_ok=True)
                until(lambda: not it.agent_sockets(), "the agent's sockets to go")
                it.start_driver("go")
                until(it.agent_sockets, "the agent's sockets")
            before = published(it)
            # A second word to the same socket is what a kubelet restart looks like.
            until(lambda: it.register_newest() and published(it) > before, "a renewal")
            until(lambda: observer.looks > 1000, "the observer to have looked often")
            agent.send(signal.SIGTERM)
            assert agent.wait() == 0
        assert not observer.deserted, (observer.deserted, observer.looks)
        assert observer.seen
        assert not it.agent_sockets()


def test_modes_whatever_the_umask() -> None:
    with node() as it:
        it.start_driver("go")
        it.start_agent(umask=0)
        endpoint = Path(it.connect()["endpoint"])
        for path in (*it.agent_sockets(), endpoint):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert stat.S_IMODE(endpoint.parent.stat().st_mode) == 0o700
        for path in endpoint.parent.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_what_a_killed_agent_leaves_is_removed_by_the_next() -> None:
    with node() as it:
        it.start_driver("go")
        agent = it.start_agent()
        endpoint = Path(it.connect()["endpoint"])
        left = [*it.agent_sockets(), endpoint]
        agent.end(signal.SIGKILL)
        assert all(path.is_socket() and not connects(path) for path in left)
        it.start_agent(wait=False)
        until(lambda: it.agent_sockets() and not left[0].exists(), "the new agent's socket")
        assert not any(path.exists() for path in left)
        assert all(connects(path) for path in it.agent_sockets())
        it.connect(name="new")
        assert it.kubelet.prepare(claim("ok"), conn="new").code == OK


@contextlib.contextmanager
def rooted(extra: int) -> Iterator[Node]:
    """A node whose longest agent socket has LONGEST + `extra` bytes."""
    with short_root() as base:
        longest = max(
            len(paths.registration_path(str(base), DRIVER, "0" * 6)),
            len(paths.endpoint_path(str(base), DRIVER, "0" * 6)),
        )
        root = base / ("r" * (LONGEST + extra - longest - 1))
        with node(root=root) as it:
            yield it


def test_paths_of_107_bytes_do() -> None:
    with rooted(0) as it:
        it.start_driver("go")
        it.start_agent()
        it.connect()
        assert max(len(str(path)) for path in it.agent_sockets()) == LONGEST
        assert it.kubelet.prepare(claim("ok")).code == OK


def test_a_root_that_is_a_byte_too_long_is_refused_in_one_clear_line() -> None:
    with rooted(1) as it:
        agent = it.start_agent(wait=False)
        assert agent.wait() == 2
        (line,) = [one for one in agent.text().splitlines() if one.startswith("dra-agent: ")]
        assert "108 bytes" in line
        assert "107" in line
        assert "use a shorter root" in line


def test_a_drivers_socket_that_is_too_long_is_said() -> None:
    """A driver can make one (by a relative path), but nobody can connect to it."""
    with node() as it, contextlib.ExitStack() as stack:
        long = f"{'d' * (LONGEST + 1 - len(str(it.registry)) - len('/.sock'))}.sock"
        assert len(str(it.registry / long)) == LONGEST + 1
        folder = os.open(it.registry, os.O_PATH)
        stack.callback(os.close, folder)
        sock = stack.enter_context(socket.socket(socket.AF_UNIX))
        sock.bind(f"/proc/self/fd/{folder}/{long}")
        sock.listen()
        it.start_driver("go")
        it.start_agent()
        it.connect()
        assert it.kubelet.prepare(claim("ok")).code == OK  # the others do not suffer
        (other,) = until(lambda: it.state()["registration"]["others"], "the long one")
        assert other["socket"].endswith(long)
        assert "too long" in other["lastError"]
        (said,) = [line for line in it.log() if "does not answer GetInfo" in line["msg"]]
        assert long in said["msg"]
        assert "too long" in said["msg"]
