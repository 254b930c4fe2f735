"""Registration sockets of drivers: found at once by inotify, and by a slow rescan.

Each look at the directory is whole, so an event that was lost costs time but nothing else.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from asyncinotify import Inotify, Mask

from agent.core import paths
from agent.errors import UserError

log = logging.getLogger(__name__)

# Unlike kubelet's watcher we need no other event: it too knows only "made" and "removed"
# (fsnotify Create covers a move into the directory).
_MASK = Mask.CREATE | Mask.MOVED_TO | Mask.DELETE | Mask.MOVED_FROM | Mask.ONLYDIR
_GONE = Mask.IGNORED | Mask.DELETE_SELF | Mask.MOVE_SELF
# One burst (a driver binds, unlinks, binds) is one look.
_SETTLE = 0.01
# Without inotify: as often as kubelet's own reconciler, in seconds.
_POLL = 1.0
_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Shortage(UserError):
    """The directory could not be read for want of something that may come back."""


class Identity(NamedTuple):
    """Tells a socket from its successor at the same path: inode numbers are soon used again."""

    device: int
    inode: int
    ctime_ns: int


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """One socket in the registry that may be a driver's."""

    path: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the directory holds, sorted by path."""

    found: tuple[Found, ...]
    first: bool = False  # what was there before us


def identity_of(path: str) -> Identity | None:
    """Identity of the socket at `path`; None when there is no socket."""
    try:
        info = os.stat(path)  # follows links, as kubelet does
    except OSError:
        return None
    if not stat.S_ISSOCK(info.st_mode):
        return None
    return Identity(info.st_dev, info.st_ino, info.st_ctime_ns)


def scan(directory: str) -> tuple[Found, ...]:
    """List drivers' registration sockets, sorted: not ours, no dot files, nothing else.

    Raises UserError when the directory cannot be read, Shortage when that may pass.
    """
    try:
        entries = os.listdir(directory)
    except OSError as error:
        if error.errno in _SHORTAGE:
            raise Shortage(f"{directory}: cannot be read: {error.strerror}") from error
        raise _missing(directory, error) from error
    found = []
    for name in sorted(entries):
        if name.startswith(".") or paths.is_ours(name):
            continue
        path = os.path.join(directory, name)
        identity = identity_of(path)
        if identity is not None:
            found.append(Found(path, identity))
    return tuple(found)


def changes(
    known: Mapping[str, Identity], found: tuple[Found, ...]
) -> tuple[tuple[str, ...], tuple[Found, ...]]:
    """Return (paths that left, sockets that appeared); one made anew is in both."""
    now = {one.path: one.identity for one in found}
    left = tuple(sorted(path for path, identity in known.items() if now.get(path) != identity))
    appeared = tuple(one for one in found if known.get(one.path) != one.identity)
    return left, appeared


async def snapshots(directory: str, *, rescan: float) -> AsyncGenerator[Snapshot, None]:
    """Yield the directory's sockets now, after every change, and every `rescan` seconds.

    Raises UserError when the directory is missing or goes away.
    """
    watched = _inode(directory)
    inotify = _open(directory)
    try:
        yield Snapshot(scan(directory), first=True)
        while True:
            if inotify is None:
                await asyncio.sleep(min(rescan, _POLL))
            elif await _changed(inotify, rescan) or _inode(directory) != watched:
                # Another directory has that name now. That alone is no event as long as a socket
                # that was bound in the old one is open.
                watched = _inode(directory)
                inotify.close()
                inotify = _open(directory)
            yield Snapshot(await _scan(directory))
    finally:
        if inotify is not None:
            inotify.close()


def _inode(directory: str) -> tuple[int, int] | None:
    try:
        found = os.stat(directory)
    except OSError:
        return None
    return found.st_dev, found.st_ino


async def _scan(directory: str) -> tuple[Found, ...]:
    """As `scan`, but a shortage is waited out: what is served goes on meanwhile."""
    while True:
        try:
            return scan(directory)
        except Shortage as error:
            log.error("%s; looked at again in %g s", error, _POLL)
        await asyncio.sleep(_POLL)


def _open(directory: str) -> Inotify | None:
    """Begin to watch; None when the system has no inotify instance or watch left."""
    inotify = None
    try:
        inotify = Inotify()
        inotify.add_watch(directory, _MASK)
    except OSError as error:
        if inotify is not None:
            inotify.close()
        if error.errno not in (*_SHORTAGE, errno.ENOSPC):
            raise _missing(directory, error) from error
        log.warning(
            "%s is looked at every %g s: inotify has nothing left (%s); "
            "see sysctl fs.inotify.max_user_instances and max_user_watches",
            directory,
            _POLL,
            error.strerror,
        )
        return None
    return inotify


async def _changed(inotify: Inotify, rescan: float) -> bool:
    """Wait for an event that could matter, or for the rescan. True when it was the last."""
    loop = asyncio.get_running_loop()
    until = loop.time() + rescan
    try:
        async with asyncio.timeout_at(until):
            while True:
                event = await inotify.get()
                name = str(event.name or "")
                # A dot file is a socket of ours that is not published yet, or nothing to us.
                known = paths.is_ours(name) or name.startswith(".")
                if event.mask & (_GONE | Mask.Q_OVERFLOW) or not known:
                    break
    except TimeoutError:
        return False
    await asyncio.sleep(_SETTLE)
    return bool(event.mask & _GONE)


def _missing(directory: str, error: OSError) -> UserError:
    return UserError(
        f"{directory}: cannot watch the directory in which drivers register: {error.strerror}. "
        "Is the kubelet root right (--kubelet-root), and mounted into the agent's container?"
    )
