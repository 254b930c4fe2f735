"""Files of unix sockets: length, mode and stale ones."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
from pathlib import Path

from agent.errors import UserError

log = logging.getLogger(__name__)

Identity = tuple[int, int]
"""Device and inode. Not the change time: a chmod or a relabelling would make it another file."""

PATH_LIMIT = 107
"""Bytes in a socket's path: sun_path has 108 with its final zero (unix(7))."""

BACKLOG = 512


def bind(path: str) -> socket.socket:
    """A listening socket of mode 0600; a stale file is replaced.

    The file appears under its name only once the socket listens: kubelet and drivers connect as
    soon as they see it, and a refusal makes kubelet wait. A missing parent directory is made with
    mode 0700. UserError when the path cannot be used.
    """
    length = len(os.fsencode(path))
    if length > PATH_LIMIT:
        raise UserError(
            f"socket path {path!r} has {length} bytes, the system takes {PATH_LIMIT}: "
            "use a shorter directory"
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    early = hidden(path)
    try:
        _make_directory(Path(path).parent)
        _check_stale(path)
        # Before bind, which gives the file the mode of its socket: there is no moment in which
        # others can connect. Not the umask, for that is of the whole process and all its threads.
        os.fchmod(sock.fileno(), 0o600)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(early)
        sock.bind(early)
        _show(sock, early, path)
    except OSError as exc:
        sock.close()
        raise UserError(f"cannot make socket {path!r}: {exc.strerror or exc}") from exc
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _show(sock: socket.socket, early: str, path: str) -> None:
    """Listen, then give the file its name; nothing is left behind when that fails."""
    try:
        sock.listen(BACKLOG)
        os.rename(early, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(early)
        raise


def hidden(path: str) -> str:
    """Where a socket is until it listens: beside its place, for a rename works only within one
    mount, and as a dot file, which kubelet and this agent overlook. Not longer than `path`, and
    another one for each name that ends in .sock: two processes may bind at the same moment."""
    directory, name = os.path.split(path)
    stem = name.removesuffix(".sock")
    return os.path.join(directory, f".{stem[-max(1, len(name) - 1) :]}")


def identity(path: str) -> Identity:
    """What tells this file from another one made later at the same path."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def stands(path: str, made: Identity) -> bool:
    """True while the file at this path is the one that was made."""
    try:
        return identity(path) == made
    except OSError:
        return False


def unlink(path: str, made: Identity) -> None:
    """Remove a socket file, unless it is gone or another one stands there now.

    One that cannot be removed is said and left: without a listener it does no more than look dead,
    and its owner has others to serve.
    """
    try:
        if identity(path) == made:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.error("socket %s cannot be removed: %s", path, error.strerror)


def _make_directory(directory: Path) -> None:
    """With those above it, all of mode 0700: Path.mkdir gives parents the default mode."""
    if not directory.is_dir():
        _make_directory(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def _check_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UserError(f"{path!r} exists and is not a socket: remove it or use another path")
