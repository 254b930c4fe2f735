"""Which registration sockets there are, as kubelet's plugin watcher sees it.

One recursive walk at the start, then inotify only: no rescan. Created or moved in: wanted, with a
new stamp, also when the path was known. Unlinked: no longer wanted. Moved away: unnoticed.
"""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path

from asyncinotify import Event, Inotify, Mask

APPEARED = Mask.CREATE | Mask.MOVED_TO


class SocketWatcher:
    """`wanted`: path -> stamp of its last appearance. run() does not return."""

    def __init__(self, directory: Path) -> None:
        self.wanted: dict[str, int] = {}
        self._directory = directory
        self._stamps = itertools.count(1)
        self._inotify = Inotify()
        self._watch(directory)

    async def run(self) -> None:
        """Follow the directory."""
        with self._inotify:
            async for event in self._inotify:
                self._take(event)

    def close(self) -> None:
        """Free the inotify instance if run() never did."""
        self._inotify.close()

    def _watch(self, directory: Path) -> None:
        """Watch a directory and walk it; dot-directories too, as kubelet's walk does."""
        self._inotify.add_watch(directory, APPEARED | Mask.DELETE)
        for path in sorted(directory.iterdir()):
            if path.is_dir():
                self._watch(path)
            else:
                self._add(path)

    def _take(self, event: Event) -> None:
        path = event.path
        if path is None or path == self._directory:
            return
        if event.mask & Mask.DELETE:
            self.wanted.pop(str(path), None)
        elif event.mask & Mask.ISDIR:
            if not path.name.startswith(".") and path.is_dir():
                self._watch(path)
        else:
            self._add(path)

    def _add(self, path: Path) -> None:
        if path.name.startswith("."):
            return
        try:
            is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
        except OSError:
            return  # gone again
        if is_socket:
            self.wanted[str(path)] = next(self._stamps)
