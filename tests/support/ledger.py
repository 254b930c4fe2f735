"""What kubelet asked, what reached the driver and what was answered; raises when a rule is broken.

The rules are what the proxy promises; each has a name, by which the tests that plant faults know
which one saw the fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agent.core import wire
from agent.rpc.call import Answer

PREPARE, UNPREPARE = "prepare", "unprepare"
_EPSILON = 1e-3  # seconds; more than a virtual clock gains while it settles


class BrokenError(AssertionError):
    """A rule was broken; `rule` is its name."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


@dataclass(eq=False)
class Ask:
    """One call of kubelet."""

    op: str
    uids: tuple[str, ...]
    body: bytes
    arrived: float
    deadline: float
    number: int
    ended: float | None = None
    cut: str = ""  # why kubelet no longer waits, other than an answer
    answer: Answer | None = None

    @property
    def open(self) -> bool:
        return self.ended is None


@dataclass(eq=False)
class Sent:
    """One call that reached the driver."""

    op: str
    uids: tuple[str, ...]
    body: bytes
    began: float
    number: int
    ended: float | None = None
    last: int = 0  # number of its end
    granted: dict[str, str] = field(default_factory=dict)  # claim UID -> device name, unique


class Ledger:
    """`slack`: seconds that a message may be under way between the two observers, up to now."""

    def __init__(
        self,
        now: Callable[[], float],
        *,
        slack: Callable[[], float] | None = None,
        watched: str = "",
    ) -> None:
        """`watched`: the one rule to look at; without one, all. Without `slack` time is virtual."""
        self._now = now
        self._exact = slack is None
        self._slack = slack or (lambda: 0.0)
        self._watched = watched
        self.found: BrokenError | None = None  # the first; whoever raised it may have hidden it
        self._count = 0
        self.asks: list[Ask] = []
        self.sent: list[Sent] = []

    def _next(self) -> int:
        self._count += 1
        return self._count

    def broken(self, rule: str, text: str) -> None:
        """A rule was broken."""
        if self._watched in ("", rule):
            error = BrokenError(rule, text)
            self.found = self.found or error
            raise error

    # What happens

    def ask(self, op: str, body: bytes, deadline: float) -> Ask:
        """Kubelet calls."""
        uids = _uids(body)
        made = Ask(op, uids, body, self._now(), deadline, self._next())
        self.asks.append(made)
        return made

    def answered(self, ask: Ask, answer: Answer) -> None:
        """Kubelet got an answer."""
        now = self._now()
        if ask.cut:
            return
        # A second answer would be one on the wire, where it ends the connection: see socketfaults.
        assert ask.open, "each call is made by one coroutine, which returns once"
        ask.ended, ask.answer = now, answer
        if now > ask.deadline + self._slack() + _EPSILON:
            self.broken("in time", f"{ask.op} {ask.uids}: {now - ask.deadline:.3f} s late")
        if ask.op == PREPARE:
            self._check_prepared(ask, answer)
        else:
            self._check_unprepared(ask, answer)

    def cut(self, ask: Ask, why: str) -> None:
        """Kubelet waits no longer."""
        if ask.open:
            ask.ended, ask.cut = self._now(), why

    def reached(self, op: str, body: bytes) -> Sent:
        """A call is at the driver."""
        uids = _uids(body)
        made = Sent(op, uids, body, self._now(), self._next())
        for uid in uids:
            self._check_asked(op, uid)
            if op == PREPARE:
                self._check_one(uid)
                self._check_order(uid)
        if op == UNPREPARE:
            self._check_forwarded_once(made)
        self.sent.append(made)
        return made

    def left(self, sent: Sent) -> None:
        """The driver is done with it, or was told that nobody waits."""
        sent.ended, sent.last = self._now(), self._next()

    # Rules

    def _open(self, ask: Ask) -> bool:
        return ask.ended is None or (bool(ask.cut) and ask.ended + self._slack() > self._now())

    def _check_asked(self, op: str, uid: str) -> None:
        if not any(a.op == op and uid in a.uids and self._open(a) for a in self.asks):
            self.broken("asked", f"a {op} of {uid} that kubelet does not wait for")

    def _check_one(self, uid: str) -> None:
        for other in self.sent:
            if other.op == PREPARE and uid in other.uids and other.ended is None:
                self.broken("one prepare", f"two prepares of {uid} in flight")

    def _check_order(self, uid: str) -> None:
        """No prepare begins after an unprepare, nor beside one, but for a newer call."""
        undone: Ask | Sent | None = None
        events: list[Ask | Sent] = list(self.asks if self._exact else self.sent)
        for event in events:
            if event.op == UNPREPARE and uid in event.uids:
                undone = event
        if undone is None:
            return
        newer = [a for a in self.asks if a.op == PREPARE and uid in a.uids and self._open(a)]
        since = undone.number if isinstance(undone, Ask) else self._asked_at(undone)
        if not any(ask.number > since for ask in newer):
            self.broken("order", f"a prepare of {uid} began after its unprepare")
        for event in self.sent:
            if event.op == UNPREPARE and uid in event.uids and event.ended is None:
                self.broken("overtaken", f"prepare of {uid} while its unprepare is there")

    def _asked_at(self, undone: Sent) -> int:
        asks = [a.number for a in self.asks if a.op == UNPREPARE and a.body == undone.body]
        return min((n for n in asks if n < undone.number), default=0)

    def _check_forwarded_once(self, sent: Sent) -> None:
        same = [s for s in self.sent if s.op == UNPREPARE and s.body == sent.body]
        asked = [a for a in self.asks if a.op == UNPREPARE and a.body == sent.body]
        if len(same) + 1 > len(asked):
            self.broken("asked", f"unprepare of {sent.uids} reached the driver twice")

    def _check_prepared(self, ask: Ask, answer: Answer) -> None:
        if answer.status is not None:
            return
        found = wire.entries(answer.body or b"")
        if found.keys() != set(ask.uids):
            self.broken("exact", f"asked {sorted(ask.uids)}, answered {sorted(found)}")
        for uid, entry in found.items():
            if entry.error:
                continue
            (device,) = entry.devices or ("none",)
            source = next((s for s in self.sent if s.granted.get(uid) == device), None)
            if source is None:
                self.broken("source", f"{uid}: no driver gave {device}")
            elif source.ended is not None and not self._after(source, ask):
                self.broken("source", f"{uid}: {device} is from before the call")

    def _check_unprepared(self, ask: Ask, answer: Answer) -> None:
        if answer.status is not None:
            return
        seen = [s for s in self.sent if s.op == UNPREPARE and s.body == ask.body]
        if not any(s.ended is None or self._after(s, ask) for s in seen):
            self.broken("forwarded", f"unprepare of {ask.uids} was answered for the driver")

    def _after(self, sent: Sent, ask: Ask) -> bool:
        """The driver's call ended later than kubelet's began."""
        if self._exact:
            return sent.last > ask.number
        return sent.ended is not None and sent.ended + self._slack() >= ask.arrived

    def check_open(self) -> None:
        """Nobody waits beyond its deadline; raises what was found before, too."""
        if self.found is not None:
            raise self.found
        for ask in self.asks:
            if ask.open and self._now() > ask.deadline + self._slack() + _EPSILON:
                self.broken("in time", f"{ask.op} {ask.uids} is not answered")

    def waiting(self) -> list[Ask]:
        """Calls of kubelet that have no answer yet."""
        return [ask for ask in self.asks if ask.open]

    def tried(self, ask: Ask) -> bool:
        """True when the driver was asked for any of its claims since it came, or is being asked."""
        return any(
            sent.op == ask.op
            and set(sent.uids) & set(ask.uids)
            and (sent.ended is None or sent.last > ask.number)
            for sent in self.sent
        )


def _uids(body: bytes) -> tuple[str, ...]:
    return tuple(claim.uid for claim in wire.parse_claims(body))
