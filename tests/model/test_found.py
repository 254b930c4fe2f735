"""What the model found, each as a plain test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.core.model import Transport
from agent.errors import TransportError
from agent.rpc.call import Answer
from agent.settings.model import AgentConfig
from tests.support.ledger import PREPARE, UNPREPARE, Ask
from tests.support.modelnode import CLAIMS, ModelNode, Pending

A = CLAIMS[:1]


@pytest.fixture
def node() -> Iterator[ModelNode]:
    node = ModelNode(AgentConfig())
    yield node
    node.close()


def at_driver(node: ModelNode) -> list[str]:
    return [pending.sent.op for pending in node.link.pending]


def grant(node: ModelNode, pending: Pending) -> None:
    results = node.link.results(pending.sent, {})
    node.resolve(pending, Answer(results.SerializeToString()))


def code(ask: Ask) -> int:
    assert ask.answer is not None
    return ask.answer.status.code if ask.answer.status else 0


def test_a_prepare_waits_for_every_unprepare_of_its_claim(node: ModelNode) -> None:
    node.call(UNPREPARE, A, 45.0)
    node.call(UNPREPARE, A, 45.0)
    ask = node.call(PREPARE, A, 45.0)
    first, second = node.link.pending
    node.resolve(second, Answer(b""))
    assert at_driver(node) == [UNPREPARE], "the other one is still at the driver"
    node.resolve(first, Answer(b""))
    grant(node, node.link.pending[0])
    assert code(ask) == 0


def test_a_prepare_that_waits_for_an_unprepare_is_stale_after_the_next(node: ModelNode) -> None:
    node.call(UNPREPARE, A, 45.0)
    stale = node.call(PREPARE, A, 45.0)
    node.call(UNPREPARE, A, 45.0)
    assert code(stale) == 1, "answered at once"
    for pending in list(node.link.pending):
        node.resolve(pending, Answer(b""))
    assert at_driver(node) == []


def test_a_prepare_is_answered_when_the_unprepare_before_it_never_is(node: ModelNode) -> None:
    node.call(UNPREPARE, A, 90.0)
    ask = node.call(PREPARE, A, 45.0)
    node.pass_time(45.0)
    assert at_driver(node) == [UNPREPARE], "it does not overtake"
    assert code(ask) == 4


def test_a_prepare_after_an_unprepare_knows_no_held_verdict(node: ModelNode) -> None:
    node = ModelNode(AgentConfig(mode="enforce"))
    node.call(PREPARE, A, 45.0)
    results = node.link.results(node.link.pending[0].sent, {A[0].uid: "permanent bad"})
    node.resolve(node.link.pending[0], Answer(results.SerializeToString()))
    assert len(node.ctx.held) == 1
    node.call(UNPREPARE, A, 45.0)
    again = node.call(PREPARE, A, 45.0)
    node.resolve(node.link.pending[0], Answer(b""))
    grant(node, node.link.pending[0])
    assert code(again) == 0
    node.close()


def test_who_joins_a_longer_call_is_answered_in_its_own_time(node: ModelNode) -> None:
    node.call(PREPARE, A, 45.0)
    short = node.call(PREPARE, A, 0.3)
    node.pass_time(0.3)
    assert short.ended is not None
    assert short.ended < short.deadline
    error = TransportError(Transport.RESET, "lost", sent=True)
    node.resolve(node.link.pending[0], error)
