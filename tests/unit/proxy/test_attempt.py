"""One attempt: whatever comes back becomes results with verdicts."""

from __future__ import annotations

import asyncio

import pytest

from agent.core.model import Failure, Kind, Status, Surface, Transport, Verdict
from agent.errors import TransportError
from agent.observe.tracing import NullTracing
from agent.proxy.attempt import Sender
from agent.rpc.call import Answer
from agent.settings.model import Rules
from agent.settings.rulefiles import load_rules
from tests.support.details import details_bin, retry_info
from tests.support.proxying import DRIVER, PREPARE, A, B, Bench, prepared, refused, request


def sender(bench: Bench) -> Sender:
    span = NullTracing().call(PREPARE, DRIVER, [A, B])
    return Sender(bench.ctx, bench.scripted.link, request(A, B), [A, B], span)


async def test_claims_asked_again_are_a_subset_of_the_request() -> None:
    bench = Bench(prepared(B))
    attempt = await sender(bench).send(5.0, (B,))
    assert bench.scripted.asked == [(B.name,)]
    assert attempt.results[B.uid].ok
    assert attempt.raw is not None
    assert attempt.raw.claims == frozenset({B.uid})


async def test_the_drivers_word_in_an_entry_is_an_explicit_verdict() -> None:
    bench = Bench(refused(A, "broken", B, permanent=True))
    results = (await sender(bench).send(5.0, (A, B))).results
    verdict, failure = results[A.uid].verdict, results[A.uid].failure
    assert verdict is not None
    assert verdict.explicit
    assert failure is not None
    assert (failure.surface, failure.permanent_error) == (Surface.CLAIM_ERROR, True)
    assert results[B.uid].ok


async def test_a_status_is_one_failure_for_every_claim_asked() -> None:
    status = Status(5, "permanent gone")
    attempt = await sender(Bench(Answer(None, status))).send(5.0, (A, B))
    assert attempt.raw is None
    for result in attempt.results.values():
        assert result.status == status
        assert result.failure is not None
        assert (result.failure.surface, result.failure.code) == (Surface.CALL_ERROR, 5)
        assert result.verdict is not None
        assert result.verdict.kind is Kind.PERMANENT


async def test_no_answer_and_no_instance_and_garbage_are_transport_failures() -> None:
    lost = TransportError(Transport.REFUSED, "refused", sent=False)
    away = Bench()
    away.scripted.away_since = 0.0
    for bench, kind in (
        (Bench(lost), Transport.REFUSED),
        (Bench(Answer(b"\x0a\xff")), Transport.PROTOCOL),
        (away, Transport.GONE),
    ):
        failure = (await sender(bench).send(5.0, (A,))).results[A.uid].failure
        assert failure is not None
        assert (failure.surface, failure.transport) == (Surface.TRANSPORT, kind)
        counted = bench.ctx.metrics.render().decode()
        assert 'grpc_status_code="' in counted


def judged(answer: Answer) -> Bench:
    """The driver's answer, judged by the real rules."""
    bench = Bench(answer)
    bench.ctx.rules = load_rules(Rules())
    return bench


async def test_a_marker_in_a_status_speaks_of_its_claim_alone() -> None:
    said = f"prepare: [dra-agent.io permanent claim={A.uid} culprit=parameters]"
    results = (await sender(judged(Answer(None, Status(2, said)))).send(5.0, (A, B))).results
    verdicts = [results[claim.uid].verdict for claim in (A, B)]
    assert [verdict.rule if verdict else "" for verdict in verdicts] == ["driver-marker", "default"]


async def test_the_details_of_a_status_are_judged() -> None:
    details = details_bin(retry_info(3))
    answer = Answer(None, Status(2, "whatever", details))
    verdict = (await sender(judged(answer)).send(5.0, (A,))).results[A.uid].verdict
    assert verdict is not None
    assert (verdict.rule, verdict.retry_after) == ("driver-retry-info", 3.0)


async def test_a_marker_in_an_entry_is_believed_for_that_claim() -> None:
    said = f"x [dra-agent.io permanent claim={A.uid}] [dra-agent.io permanent claim={B.uid}]"
    verdict = (await sender(judged(refused(A, said))).send(5.0, (A,))).results[A.uid].verdict
    assert verdict is not None
    assert verdict.rule == "driver-marker"


async def test_others_go_on_while_many_claims_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver may say kilobytes about each of hundreds of claims."""
    bench = Bench(refused(A, "busy"))  # B has no entry, which is a failure, too
    seen: list[str] = []
    classify = bench.ctx.rules.classify

    def judge(failure: Failure) -> Verdict:
        asyncio.get_running_loop().call_soon(seen.append, "another")
        seen.append("judged")
        return classify(failure)

    monkeypatch.setattr(bench.ctx.rules, "classify", judge)
    await sender(bench).send(5.0, (A, B))
    assert seen[:3] == ["judged", "another", "judged"]
