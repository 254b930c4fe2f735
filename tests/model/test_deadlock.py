"""Two claims of one driver never wait for each other: compute-domain's prepare of one pod returns
only after the same driver has prepared another pod's claim.
"""

from __future__ import annotations

import pytest

from agent.core import wire
from agent.rpc.call import Answer
from agent.settings.model import AgentConfig
from tests.model.faults import lock_per_driver
from tests.support.ledger import PREPARE, Ask
from tests.support.modelnode import CLAIMS, ModelNode


def both_prepared() -> bool:
    """A channel's prepare, which the driver answers once it has prepared the daemon's claim."""
    node = ModelNode(AgentConfig())
    try:
        channel = node.call(PREPARE, CLAIMS[:1], 45.0)
        daemon = node.call(PREPARE, CLAIMS[1:2], 45.0)
        waiting = {pending.sent.uids: pending for pending in node.link.pending}
        if daemon.uids in waiting:
            for uids in (daemon.uids, channel.uids):
                results = node.link.results(waiting[uids].sent, {})
                node.resolve(waiting[uids], Answer(results.SerializeToString()))
        node.pass_time(46.0)
        return all(prepared(ask) for ask in (channel, daemon))
    finally:
        node.close()


def prepared(ask: Ask) -> bool:
    assert ask.answer is not None
    entries = wire.entries(ask.answer.body or b"")
    return bool(entries) and not any(entry.error for entry in entries.values())


def test_a_prepare_that_waits_for_another_pods_prepare_ends() -> None:
    assert both_prepared()


def test_it_would_not_with_a_lock_per_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    lock_per_driver(monkeypatch)
    assert not both_prepared()
