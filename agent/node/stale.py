"""Sockets that an earlier agent left: removed once it is sure that nobody serves them."""

from __future__ import annotations

import contextlib
import logging
import os
import re

from agent import names
from agent.core import paths
from agent.node.lock import Lock, Locks, try_lock

log = logging.getLogger(__name__)

_OURS = re.compile(
    # A leading dot: it was not published yet (rpc/sockets.py).
    rf"\.?(?:{re.escape(names.SOCKET_PREFIX)}(?P<registration>[0-9a-f]{{8}})~"
    r"|(?P<endpoint>[0-9a-f]{8})-)[0-9a-f]{6}(\.sock)?"
)


def remove_stale(locks: Locks) -> list[str]:
    """Unlink what earlier agents left, and return the paths. Only after `locks.acquire()`.

    Each driver has a lock too, which an agent or sidecar holds while it serves it: sockets of a
    driver that somebody serves stay. kubelet forgets a registration when its socket goes.
    """
    kubelet_root, only_driver = locks.kubelet_root, locks.only_driver
    removed: list[str] = []
    free: dict[str, Lock | str] = {}
    try:
        for directory in (paths.registry_dir(kubelet_root), paths.endpoint_dir(kubelet_root)):
            for name in sorted(os.listdir(directory)):
                match = _OURS.fullmatch(name)
                digest = (match["registration"] or match["endpoint"]) if match else ""
                if not digest or (only_driver and digest != paths.driver_hash(only_driver)):
                    continue
                if not only_driver and digest not in free:
                    lock = f"{paths.lock_path(kubelet_root)}-{digest}"
                    free[digest] = try_lock(lock, locks.holder)
                if isinstance(free.get(digest), str):
                    continue
                path = os.path.join(directory, name)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                    removed.append(path)
    finally:
        for held in free.values():
            if isinstance(held, Lock):
                held.close()
    if removed:
        log.info("removed %d sockets of an earlier agent", len(removed))
    return removed
