"""Which generation of a link may be retired, in the order in which kubelet lists them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """What a generation's endpoint has at this moment."""

    in_flight: int  # unary calls, and connections with a part of an answer still to be sent
    connected: bool


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds."""

    retire_after: float  # kubelet may still hold a pointer to the older one this long
    recheck: float  # one that must go has a call in flight: look again


@dataclass(slots=True)
class Generation:
    """What is known of one generation."""

    name: str
    published_at: float
    notified: int = 0  # Notify(true) received
    registered_at: float | None = None  # the latest of them
    connected_at: float | None = None  # the first time
    removed: bool = False  # somebody removed its registration socket: kubelet lets it go
    stopped: bool = False
    leaving: bool = False

    @property
    def ready_at(self) -> float | None:
        """Since when kubelet has had this generation and a connection to it."""
        if self.registered_at is None or self.connected_at is None:
            return None
        return max(self.registered_at, self.connected_at)


def kubelet_order(live: Sequence[Generation]) -> list[Generation]:
    """Sort as kubelet lists them, the newest last, those to be registered behind it.

    After a restart of kubelet this is another order than that of their making. Those whose
    registration socket was removed come first: they are older than anything.
    """

    def place(one: Generation) -> float:
        if one.removed:
            return -math.inf
        return math.inf if one.registered_at is None else one.registered_at

    return sorted(live, key=place)


def superseded(
    live: Sequence[Generation], now: float, views: Mapping[str, View], patience: Patience
) -> tuple[Generation | None, float]:
    """Return a generation that may go now, or None and when to look again (`math.inf`: never).

    It may go when kubelet has had a later one, and a connection to it, for `retire_after`, the
    connection still stands, and no unary call is in flight. One whose registration socket was
    removed may go as soon as kubelet has closed its connection.
    """
    wake = math.inf
    order = kubelet_order(live)
    for at, old in enumerate(order):
        if old.registered_at is None and not old.removed:
            continue
        ready = [
            newer.ready_at + patience.retire_after
            for newer in order[at + 1 :]
            if newer.ready_at is not None and _view(views, newer).connected
        ]
        if old.removed:
            ready.append(now + patience.recheck if _view(views, old).connected else now)
        if not ready:
            continue
        when = min(ready)
        if when > now:
            wake = min(wake, when)
        elif _view(views, old).in_flight:
            wake = min(wake, now + patience.recheck)
        else:
            return old, wake
    return None, wake


def never_taken(
    live: Sequence[Generation], now: float, views: Mapping[str, View], patience: Patience
) -> tuple[Generation | None, float]:
    """Like `superseded`, for generations that kubelet never took (it is down or refuses).

    Asked only when a renewal waits for a place; the latest made is never among them.
    """
    wake = math.inf
    for old in live[:-1]:
        view = _view(views, old)
        if old.registered_at is not None or view.connected or view.in_flight:
            continue
        when = old.published_at + patience.retire_after
        if when <= now:
            return old, wake
        wake = min(wake, when)
    return None, wake


def _view(views: Mapping[str, View], generation: Generation) -> View:
    return views.get(generation.name, View(0, False))
