"""Statuses for calls that got no answer."""

from __future__ import annotations

import pytest

from agent.core.model import Transport
from agent.errors import TransportError
from agent.rpc import call


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (Transport.REFUSED, call.UNAVAILABLE),
        (Transport.GONE, call.UNAVAILABLE),
        (Transport.RESET, call.UNAVAILABLE),
        (Transport.DEADLINE, call.DEADLINE_EXCEEDED),
        (Transport.PROTOCOL, call.INTERNAL),
        (Transport.CANCELLED, call.CANCELLED),
    ],
)
def test_each_kind_has_its_status(kind: Transport, code: int) -> None:
    status = call.status_of(TransportError(kind, "words", sent=True))
    assert (status.code, status.message) == (code, "words")


def test_no_kind_is_forgotten() -> None:
    for kind in Transport:
        assert call.status_of(TransportError(kind, "", sent=False)).code != call.OK
