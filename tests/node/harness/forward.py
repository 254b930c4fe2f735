"""A TCP forwarder between the agent and the API server that tests can cut or freeze."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from types import TracebackType
from urllib.parse import urlsplit

# Fixed, as those of harness/agent.py are and for the same reason: while it does not listen, nobody
# else gets its port, not even a client that looks for it.
_PORTS = itertools.count(21_000)


class Forwarder:
    """Listens on one port for its whole life, so that a kubeconfig can name it."""

    def __init__(self, server: str) -> None:
        target = urlsplit(server)
        self._target = (target.hostname or "127.0.0.1", target.port or 443)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._half: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._listener: socket.socket | None = None
        self.accepted = 0
        self._port = next(_PORTS)
        self.start()

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Accepts connections again, after stop()."""
        assert self._listener is None, "is forwarding already"
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        listener.listen()
        self._port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        """The API server is away: connections are reset, new ones refused."""
        if self._listener is not None:
            # close() alone would leave a thread in accept(), and the port with it.
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.reset()
        self._flowing.set()

    def reset(self) -> None:
        """Resets the connections there are; new ones are accepted."""
        with self._lock:
            ends, self._sockets = self._sockets, set()
        for end in ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def freeze(self) -> None:
        """The API server vanishes without a word: connections stay open, no byte passes."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def __enter__(self) -> Forwarder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                far = socket.create_connection(self._target, timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._sockets |= {near, far}
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(65536):
                self._flowing.wait()
                sink.sendall(content)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        with self._lock:
            # The second of the two directions to end closes both ends.
            if source in self._half:
                self._sockets -= {source, sink}
                self._half -= {source, sink}
                source.close()
                sink.close()
            else:
                self._half |= {source, sink}
