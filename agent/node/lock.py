"""One agent per driver: locks that the kernel drops with the process, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os

from agent.core import paths, text
from agent.errors import UserError

log = logging.getLogger(__name__)


class Lock:
    """A held flock on a file that says who holds it. Released by `close()` or with the process."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def close(self) -> None:
        """Release. The file stays: unlinking it would let two holders lock two inodes."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def try_lock(path: str, holder: str) -> Lock | str:
    """Return the lock, or who holds it. Raises UserError when the file cannot be used."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UserError(f"{path}: cannot open the lock file: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        said = os.pread(fd, 512, 0).decode(errors="replace")
        os.close(fd)
        return text.clean(said, 256) or "an unknown process"
    with contextlib.suppress(OSError):  # a full disk: the lock is held all the same
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{holder}\n".encode(), 0)
    return Lock(path, fd)


class Locks:
    """The locks of one agent: the node's (a sidecar: its driver's), and one per driver served."""

    def __init__(self, kubelet_root: str, *, only_driver: str, holder: str) -> None:
        self.kubelet_root = kubelet_root
        self.only_driver = only_driver
        self.holder = holder
        # Driver name -> who serves it instead of us, or why nobody can; tried again at each look.
        self.blocked: dict[str, str] = {}
        self._main: Lock | None = None
        self._drivers: dict[str, Lock] = {}

    def acquire(self) -> None:
        """Take the node's lock, or the driver's. Raises UserError that names the holder."""
        path = paths.lock_path(self.kubelet_root, self.only_driver)
        lock = try_lock(path, self.holder)
        if isinstance(lock, str):
            only = self.only_driver
            what = f"driver {only}" if only else "the drivers of this node"
            raise UserError(
                f"{path}: another agent serves {what} already: {lock}. Stop that one first; "
                "a second one can only be a sidecar for one other driver (--driver)"
            )
        self._main = lock

    def take(self, driver: str) -> bool:
        """Lock one driver before serving it. False, and noted in `blocked`, when that fails."""
        if driver == self.only_driver or driver in self._drivers:
            return True
        path = paths.lock_path(self.kubelet_root, driver)
        try:
            lock = try_lock(path, self.holder)
            said = f"is served by another agent: {lock} ({path})"
        except UserError as error:  # no inode or file descriptor left, say
            lock = str(error)
            said = f"cannot be served now: {lock}"
        if isinstance(lock, str):
            if self.blocked.get(driver) != lock:
                log.warning("%s %s", driver, said)
            self.blocked[driver] = lock
            return False
        self.blocked.pop(driver, None)
        self._drivers[driver] = lock
        return True

    def drop(self, driver: str) -> None:
        """A driver is not served any more."""
        lock = self._drivers.pop(driver, None)
        if lock is not None:
            lock.close()

    def close(self) -> None:
        """Release all."""
        for driver in list(self._drivers):
            self.drop(driver)
        if self._main is not None:
            self._main.close()
            self._main = None


def holder_text(pod_namespace: str, pod_name: str) -> str:
    """Return what is written into the lock file about this process."""
    pod = f", pod {pod_namespace}/{pod_name}" if pod_name else ""
    return f"pid {os.getpid()}{pod}"
