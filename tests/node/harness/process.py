"""One child process with a log file, and the ways in which tests make it end or stand still."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .waiting import wait_for


class Process:
    """A restartable child process. Its output is appended to one log over all its lives."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str],
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.argv = [str(argument) for argument in argv]
        self.log = log
        self.env = dict(env)
        self.cwd = cwd
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} was never started"
        return self._child.pid

    @property
    def code(self) -> int | None:
        """The exit code of the last life: None while running, negative for a signal."""
        return self._child.poll() if self._child else None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        assert not self.running, f"{self.name} is running already"
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self.argv,
                env=self.env,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for pytest, which then ends everything in order.
                start_new_session=True,
            )

    def expect_running(self) -> None:
        """For use in waits: a process that ended will never become ready."""
        if not self.running:
            raise RuntimeError(f"{self.name} ended with {self.code}:\n{self.tail()}")

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            os.kill(self.pid, number)

    def stop(self, limit: float = 15) -> int:
        """SIGTERM, then SIGKILL when `limit` is over; returns the exit code."""
        if self._child is None:
            return 0
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            return self._child.wait(limit)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """SIGKILL: no goodbye, sockets stay as files."""
        if self._child is None:
            return 0
        self.signal(signal.SIGKILL)
        return self._child.wait(10)

    def wait(self, limit: float) -> int:
        """Waits for an end that something else causes."""
        wait_for(lambda: not self.running, limit, f"end of {self.name}")
        assert self.code is not None
        return self.code

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP for the time of the block: connections stay open, nothing answers."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def environ(self) -> dict[str, str]:
        """The environment the process really has."""
        content = Path(f"/proc/{self.pid}/environ").read_bytes().decode(errors="replace")
        return dict(line.split("=", 1) for line in content.split("\0") if "=" in line)

    def status(self) -> dict[str, str]:
        """/proc/PID/status: capabilities (CapEff …), NoNewPrivs, VmRSS …"""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def tail(self, lines: int = 40) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - lines * 400))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
