"""Runs the demo in a temporary directory and leaves nothing behind."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import uvloop

from agent.demo.show import Printer
from agent.demo.story import Demo
from agent.errors import AgentError

INTERRUPTED = 130  # as shells report a process ended by Ctrl-C
LONGEST_ROOT = 40  # bytes; the sockets below it need the rest of the 107


def run(*, keep: bool) -> int:
    """Play; see agent.demo.run."""
    root = temporary_root()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_play(root, keep=keep))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def temporary_root() -> Path:
    """A new directory with a short path: paths of sockets may have 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="dra-"))
    if len(str(root).encode()) > LONGEST_ROOT:
        root.rmdir()
        root = Path(tempfile.mkdtemp(prefix="dra-", dir="/tmp"))
    return root


async def _play(root: Path, *, keep: bool) -> int:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    printer = Printer()
    demo = Demo(root, printer)
    over = False
    try:
        await demo.start()
        await demo.play()
        await demo.end()
        over = True
        if keep:
            await demo.keep()
    except asyncio.CancelledError:
        if over:  # Ctrl-C is how --keep is ended
            return 1 if demo.differs else 0
        printer.line()
        printer.line("Ended by a signal; cleaning up.")
        return INTERRUPTED
    except AgentError as error:
        print(f"dra-agent demo: {error}", file=sys.stderr)
        return 1
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await demo.close()
    return 1 if demo.differs else 0
