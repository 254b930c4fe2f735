"""Files that may change under us, such as a mounted ConfigMap.

kubelet writes a ConfigMap into a new directory and renames the symlink `..data` onto it, so what
changes is the directory of the file, never the file. Directories are watched, and looked at every
now and then in case inotify lost something or has nothing left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Collection

from asyncinotify import Inotify, Mask

log = logging.getLogger(__name__)

_MASK = Mask.CREATE | Mask.MOVED_TO | Mask.CLOSE_WRITE | Mask.DELETE | Mask.MOVED_FROM
_SETTLE = 0.2
"""Seconds: an editor's or kubelet's several steps are one change."""
_LONGEST = 2.0
"""Seconds after which a change is told although the directory has not come to rest."""


async def changes(
    directories: Callable[[], Collection[str]], *, poll: float
) -> AsyncGenerator[None, None]:
    """Yield once at the start, after every change, and every `poll` seconds.

    The directories are asked for anew each time and are watched before the yield, so what the
    consumer then reads cannot change unseen. One that is missing is tried again with the next poll.
    """
    inotify = _open()
    try:
        watched: set[str] = set()
        while True:
            wanted = set(directories())
            if inotify is not None:
                watched = _watch(inotify, wanted, watched)
            yield
            if set(directories()) - wanted:
                continue  # what was read names more: watch it, and look at what came before that
            if inotify is None:
                await asyncio.sleep(poll)
            elif await _changed(inotify, poll):
                watched.clear()  # a directory may have been made anew: add_watch is idempotent
    finally:
        if inotify is not None:
            inotify.close()


def _open() -> Inotify | None:
    try:
        return Inotify()
    except OSError as error:
        log.warning("config is looked at from time to time only: no inotify (%s)", error.strerror)
        return None


def _watch(inotify: Inotify, wanted: set[str], watched: set[str]) -> set[str]:
    for directory in sorted(wanted - watched):
        with contextlib.suppress(OSError, ValueError):  # ValueError: cannot be a path
            inotify.add_watch(directory, _MASK)
            watched.add(directory)
    return watched


async def _changed(inotify: Inotify, poll: float) -> bool:
    """Wait for an event and the end of its burst; False when the poll came first."""
    try:
        async with asyncio.timeout(poll):
            await inotify.get()
    except TimeoutError:
        return False
    loop = asyncio.get_running_loop()
    latest = loop.time() + _LONGEST
    with contextlib.suppress(TimeoutError):
        while loop.time() < latest:
            async with asyncio.timeout_at(min(loop.time() + _SETTLE, latest)):
                await inotify.get()
    return True
