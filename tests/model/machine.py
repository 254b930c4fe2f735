"""The model: anything that kubelet, driver and agent may do, in any order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.core.model import ClaimRef, Transport
from agent.errors import TransportError
from agent.rpc.call import Answer
from agent.settings.model import AgentConfig
from tests.support.ledger import PREPARE, UNPREPARE
from tests.support.modelnode import CLAIMS, DRIVER, ModelNode, Pending, unavailable

claims = st.sets(st.sampled_from(CLAIMS), min_size=1).map(
    lambda found: tuple(sorted(found, key=lambda claim: claim.uid))
)
deadlines = st.sampled_from([45.0, 45.0, 45.0, 12.0, 3.0, 0.3])
words = st.sampled_from(["", "", "transient busy", "permanent bad", "ambiguous odd"])
index = st.integers(min_value=0, max_value=9)
times = st.sampled_from([0.01, 0.3, 1.0, 4.0, 11.0, 46.0])


class Calls(RuleBasedStateMachine):
    """Prepare, unprepare, retry, join, cancel, restarts, held verdicts, deadlines."""

    node: ModelNode
    watched = ""  # the one rule to look at, where a fault is planted

    @initialize(mode=st.sampled_from(["observe", "enforce"]), seed=st.integers(0, 3))
    def start(self, mode: str, seed: int) -> None:
        enforce = AgentConfig(mode="enforce")
        config = enforce if mode == "enforce" else AgentConfig()
        self.node = ModelNode(config, seed=seed, watched=self.watched)

    @rule(wanted=claims, deadline=deadlines)
    def prepare(self, wanted: tuple[ClaimRef, ...], deadline: float) -> None:
        self.node.call(PREPARE, wanted, deadline)

    @rule(wanted=claims, deadline=deadlines)
    def unprepare(self, wanted: tuple[ClaimRef, ...], deadline: float) -> None:
        self.node.call(UNPREPARE, wanted, deadline)

    @precondition(lambda self: self.node.ledger.waiting())
    @rule(at=index)
    def kubelet_gives_up(self, at: int) -> None:
        waiting = self.node.ledger.waiting()
        self.node.cancel(waiting[at % len(waiting)])

    @rule(seconds=times)
    def time_passes(self, seconds: float) -> None:
        self.node.pass_time(seconds)

    # The driver

    def _pending(self, at: int) -> Pending:
        pending = self.node.link.pending
        return pending[at % len(pending)]

    @precondition(lambda self: self.node.link.pending)
    @rule(at=index, said=st.lists(words, min_size=3, max_size=3))
    def driver_answers(self, at: int, said: list[str]) -> None:
        pending = self._pending(at)
        if pending.sent.op == UNPREPARE:
            self.node.resolve(pending, Answer(b""))
            return
        errors = dict(zip(pending.sent.uids, said, strict=False))
        results = self.node.link.results(pending.sent, errors)
        self.node.resolve(pending, Answer(results.SerializeToString()))

    @precondition(lambda self: self.node.link.pending)
    @rule(at=index, kind=st.sampled_from(["missing", "extra", "garbage"]))
    def driver_answers_oddly(self, at: int, kind: str) -> None:
        pending = self._pending(at)
        results = self.node.link.results(pending.sent, {})
        if kind == "missing":
            del results.claims[pending.sent.uids[0]]
        if kind == "extra":
            results.claims["unasked"].devices.add(device_name="dev-0")
        body = b"\xff\xff" if kind == "garbage" else results.SerializeToString()
        if pending.sent.op == UNPREPARE:
            body = b""
        self.node.resolve(pending, Answer(body))

    @precondition(lambda self: self.node.link.pending)
    @rule(at=index, word=words.filter(bool))
    def driver_refuses(self, at: int, word: str) -> None:
        self.node.resolve(self._pending(at), unavailable(word))

    @precondition(lambda self: self.node.link.pending)
    @rule(at=index)
    def connection_is_lost(self, at: int) -> None:
        error = TransportError(Transport.RESET, "connection lost", sent=True)
        self.node.resolve(self._pending(at), error)

    @precondition(lambda self: self.node.link.away_since is None)
    @rule()
    def driver_dies(self) -> None:
        self.node.link.lose(self.node.loop.time())
        self.node.settle()

    @precondition(lambda self: self.node.link.away_since is not None)
    @rule()
    def driver_returns(self) -> None:
        self.node.link.return_()
        self.node.settle()

    # The agent

    @rule()
    def agent_dies(self) -> None:
        self.node.kill_agent()

    @rule()
    def agent_is_told_to_stop(self) -> None:
        self.node.proxy.stop_retrying()
        self.node.settle()

    @rule()
    def renewal_trigger(self) -> None:
        self.node.proxy.trigger(DRIVER)
        self.node.settle()

    @rule(wanted=claims)
    def pod_is_deleted(self, wanted: tuple[ClaimRef, ...]) -> None:
        self.node.proxy.pod_deleting("ns", [claim.name for claim in wanted])
        self.node.settle()

    # Rules that hold at any time

    @invariant()
    def nobody_waits_too_long(self) -> None:
        if hasattr(self, "node"):
            self.node.ledger.check_open()

    @invariant()
    def no_claim_waits_for_another(self) -> None:
        """A call reaches the driver at once, unless its own claim is busy, undone or held."""
        if not hasattr(self, "node") or self.node.link.away_since is not None:
            return
        node, ledger = self.node, self.node.ledger
        for ask in ledger.waiting():
            others = [a for a in ledger.waiting() if a is not ask and set(a.uids) & set(ask.uids)]
            if not others and not ledger.tried(ask) and ask.deadline - node.loop.time() > 0.1:
                text = f"{ask.op} {ask.uids} waits for another claim"
                ledger.broken("independent", text)

    def teardown(self) -> None:
        if not hasattr(self, "node"):
            return
        node = self.node
        try:
            node.pass_time(60.0)
            node.ledger.check_open()
            left = (node.ctx.live, node.ctx.undoing, node.link.pending)
            if any(left) or node.tasks.names:
                node.ledger.broken("nothing left", f"{left} {node.tasks.names}")
        finally:
            node.close()
