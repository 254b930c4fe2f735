"""Faults planted under the model on real sockets, where calls have connections."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import retire
from agent.rpc.incoming import Incoming
from tests.model.faults import (
    Plant,
    deaf_to_unprepare,
    forgotten,
    no_joining,
    unprepare_not_sent,
)


def retired_in_use(patch: pytest.MonkeyPatch) -> None:
    """An older generation goes with the calls that are in flight on it."""
    patch.setattr(retire, "_view", lambda views, generation: retire.View(0, True))


def answered_twice(patch: pytest.MonkeyPatch) -> None:
    """The end of kubelet's call is written a second time, which ends its whole connection."""
    serve = Incoming.serve

    async def twice(self: Any, unary: Any, *args: Any, **options: Any) -> None:
        await serve(self, unary, *args, **options)
        if getattr(unary, "__qualname__", "").startswith("Noted."):
            block = b"\x00\x0bgrpc-status\x010"
            head = len(block).to_bytes(3, "big") + b"\x01\x05"  # HEADERS; END_STREAM, END_HEADERS
            self._stream._transport.write(head + self._stream.id.to_bytes(4, "big") + block)

    patch.setattr(Incoming, "serve", twice)


SOCKET_FAULTS: dict[Plant, str] = {
    retired_in_use: "renewal",
    answered_twice: "renewal",
    no_joining: "one prepare",
    deaf_to_unprepare: "order",
    forgotten: "exact",
    unprepare_not_sent: "forwarded",
}
"""Those that are planted under real sockets too."""
