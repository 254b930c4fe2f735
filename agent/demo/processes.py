"""Child processes: started with a clean environment, ended for certain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import agent
from agent.errors import AgentError

SOURCE = Path(agent.__file__).parent.parent
KEPT = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV")


class TookTooLong(AgentError):
    """Something that was waited for did not come in time."""


async def until(condition: Callable[[], object], what: str, *, limit: float = 10.0) -> None:
    """Look every 20 ms until the condition is true. Raises TookTooLong, which says `what`."""
    try:
        async with asyncio.timeout(limit):
            while not condition():  # noqa: ASYNC110 (conditions live in files and other objects)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise TookTooLong(f"waited {limit:g} s for: {what}") from None


class Child:
    """One `python …` process; its standard error goes to a file."""

    def __init__(self, arguments: tuple[str, ...], *, output: Path) -> None:
        self.arguments = arguments
        self.output = output
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it in a session of its own, so that a Ctrl-C on the terminal is only ours."""
        environment = {key: os.environ[key] for key in KEPT if key in os.environ}
        environment["PYTHONPATH"] = str(SOURCE)
        with self.output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code; negative for a signal; None while it runs."""
        return None if self._process is None else self._process.returncode

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if it has ended."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def wait(self, limit: float = 10.0) -> int:
        """Wait for its end and give the exit code. Raises TookTooLong."""
        assert self._process is not None
        try:
            async with asyncio.timeout(limit):
                return await self._process.wait()
        except TimeoutError:
            raise TookTooLong(f"waited {limit:g} s for the end of {self.arguments[1]}") from None

    async def end(self, limit: float = 5.0) -> None:
        """SIGTERM, after `limit` SIGKILL, and wait."""
        if self._process is None:
            return
        self.send(signal.SIGTERM)
        try:
            await self.wait(limit)
        except TookTooLong:
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL and wait."""
        self.send(signal.SIGKILL)
        await self.wait()

    def text(self) -> str:
        """What it wrote so far."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file that are JSON objects; a line still being written is left out."""
    if not path.exists():
        return
    for line in path.read_text(errors="replace").splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
