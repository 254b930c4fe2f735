"""When to make and when to retire generations of a link: decides, touches nothing.

The owner tells what happened (methods with `now`), asks `next()` what to do, does it, and asks
again until the answer is `Sleep`. Invariants: never more than `max_generations`; the generation
that kubelet registered last is never retired; `Unlink` is only said after `Stop` of the same one.

A renewal that is due while all places are taken waits until the oldest may be retired by the
rule. A call that meanwhile goes to the driver directly is as good as without an agent; one that
was cut by an early retirement would be a failure that only the agent caused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.core import retire
from agent.core.retire import Generation, View


@dataclass(frozen=True, slots=True)
class Periods:
    """Seconds; from `registration.overlay` and `drivers` of the config."""

    renew_delay: float = 2.0
    renew_again: tuple[float, ...] = (10.0, 150.0)
    retire_after: float = 60.0
    max_generations: int = 3
    hold: float = 10.0
    # Held calls are answered when the hold ends; their answers get this long to leave.
    answer_grace: float = 1.0
    # Look again this often at a generation that must go but has a call in flight.
    recheck: float = 0.1
    # intake: kubelet knows nobody but us, so its restart is no reason to register again.
    renew_on_notify: bool = True


@dataclass(frozen=True, slots=True)
class Publish:
    """Make a generation, then call `published()`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Close the endpoint's listener and abort its connections; the sockets' files stay."""

    generation: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unlink:
    """Remove endpoint and registration socket of a stopped generation, and forget it."""

    generation: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing to do before `until` (None: before something happens)."""

    until: float | None


Step = Publish | Stop | Unlink | Sleep


@dataclass(slots=True)
class Renewal:
    """State of one link."""

    periods: Periods
    away_since: float | None = None
    reason: str = ""
    delayed: bool = False  # a renewal is due but all places are taken
    _generations: list[Generation] = field(default_factory=list)
    _quick: float | None = None
    _quick_first: float = 0.0
    _again: list[float] = field(default_factory=list)

    # What happened

    def start(self, now: float) -> None:
        """The driver was there before us: kubelet has it already, so publish at once."""
        self._quick, self._quick_first, self.reason = now, now, "start"

    def trigger(self, now: float, reason: str, *, restart: bool) -> None:
        """Ask for a renewal; `restart`: of kubelet or driver, whose registration may come late.

        Triggers that follow each other closely make one renewal; it is put off for a later one
        by at most one more `renew_delay`.
        """
        self.reason = reason
        delay = self.periods.renew_delay
        if self._quick is None:
            self._quick_first = now
        self._quick = min(now + delay, self._quick_first + 2 * delay)
        if restart:
            self._again = sorted(now + later for later in self.periods.renew_again)

    def retry_at(self, when: float) -> None:
        """The generation could not be made: again at `when`, for the same reason."""
        self._quick = self._quick_first = when

    def published(self, generation: str, now: float) -> None:
        """A generation's sockets are there."""
        for old in self._generations:
            old.leaving = old.leaving or old.stopped
        self._generations.append(Generation(generation, now))

    def connected(self, generation: str, now: float) -> None:
        """Somebody connected to a generation's endpoint."""
        found = self._find(generation)
        if found is not None and found.connected_at is None:
            found.connected_at = now

    def notified(self, generation: str, registered: bool, now: float) -> bool:
        """Kubelet sent NotifyRegistrationStatus. True when this is a trigger (already noted)."""
        found = self._find(generation)
        if found is None or found.removed:
            return False
        if not registered:
            found.registered_at = None
            return False
        found.notified += 1
        found.registered_at = now
        # Kubelet registers a socket once in its life: the second time it is another life.
        if found.notified < 2 or not self.periods.renew_on_notify:
            return False
        self.trigger(now, "kubelet-restart", restart=True)
        return True

    def removed(self, generation: str) -> None:
        """Somebody removed a generation's registration socket; it holds no place for long."""
        found = self._find(generation)
        if found is not None:
            found.removed, found.registered_at = True, None

    def went_away(self, now: float) -> None:
        """No instance of the driver is connected, and none can be."""
        if self.away_since is None:
            self.away_since = now

    def came_back(self, now: float) -> bool:
        """An instance is connected. True when the link had been withdrawn (a trigger, noted)."""
        if self.away_since is None:
            return False
        self.away_since = None
        if not self.withdrawn:
            return False
        self.trigger(now, "driver-back", restart=True)
        return True

    # What to do

    def next(self, now: float, views: Mapping[str, View], *, driver_socket: bool) -> Step:
        """Return the next step; `driver_socket`: a registration socket of the driver exists."""
        for gone in [g for g in self._generations if g.stopped and g.leaving]:
            self._generations.remove(gone)
            return Unlink(gone.name)
        if self.away_since is not None:
            return self._while_away(now, views, driver_socket, self.away_since)
        old, wake = retire.superseded(self._live, now, views, self._patience)
        if old is not None:
            reason = "registration socket removed" if old.removed else "retired"
            return self._stop(old, reason, leaving=True)
        due = min([t for t in (self._quick, *self._again[:1]) if t is not None], default=math.inf)
        self.delayed = due <= now and len(self._generations) >= self.periods.max_generations
        if self.delayed:
            stale, stale_wake = retire.never_taken(self._live, now, views, self._patience)
            if stale is not None:
                return self._stop(stale, "never registered", leaving=True)
            due, wake = math.inf, min(wake, stale_wake)
        if due <= now:
            return self._publish(now)
        until = min(due, wake)
        return Sleep(None if until == math.inf else until)

    def _publish(self, now: float) -> Publish:
        if self._quick is not None and self._quick <= now:
            self._quick = None
        self._again = [t for t in self._again if t > now]
        return Publish(self.reason)

    def _while_away(
        self, now: float, views: Mapping[str, View], driver_socket: bool, since: float
    ) -> Step:
        live, end = self._live, since + self.periods.hold
        if not live:
            for left in self._generations:
                left.leaving = not driver_socket
            if self._generations and not driver_socket:
                return self.next(now, views, driver_socket=False)
            return Sleep(None)
        if now < end:
            return Sleep(end)
        busy = any(views[g.name].in_flight for g in live if g.name in views)
        if busy and now < end + self.periods.answer_grace:
            return Sleep(now + self.periods.recheck)
        last = len(live) == 1
        return self._stop(live[0], "driver away", leaving=not last or not driver_socket)

    def _stop(self, generation: Generation, reason: str, *, leaving: bool) -> Stop:
        generation.stopped, generation.leaving = True, leaving
        return Stop(generation.name, reason)

    # What is

    @property
    def names(self) -> list[str]:
        """Generations in the order of their making."""
        return [g.name for g in self._generations]

    @property
    def registered(self) -> bool:
        """True while kubelet has at least one live generation."""
        return any(g.registered_at is not None for g in self._live)

    @property
    def ready(self) -> bool:
        """True while kubelet has a live generation and was seen to connect to it."""
        return any(g.ready_at is not None for g in self._live)

    @property
    def withdrawn(self) -> bool:
        """True when the driver's absence outlasted the hold."""
        return bool(self._generations) and not self._live

    @property
    def due(self) -> list[float]:
        """Times of the renewals to come."""
        return sorted([*([] if self._quick is None else [self._quick]), *self._again])

    @property
    def _patience(self) -> retire.Patience:
        return retire.Patience(self.periods.retire_after, self.periods.recheck)

    @property
    def _live(self) -> list[Generation]:
        return [g for g in self._generations if not g.stopped]

    def _find(self, generation: str) -> Generation | None:
        return next((g for g in self._generations if g.name == generation), None)
