"""What calls share: policy, live calls, memory that stays bounded."""

from __future__ import annotations

from agent.core.plan import Plan, RetryPolicy
from agent.proxy.context import Backlog, LiveCall
from agent.settings.model import AgentConfig, Drivers, Duration, PerDriver, Retry
from tests.support.proxying import DRIVER, A, B, Bench, prepared


async def test_a_drivers_own_periods_hold_for_it_alone() -> None:
    special = PerDriver(retry=Retry(margin=Duration(7)))
    bench = Bench(settings=AgentConfig(drivers=Drivers(per_driver={DRIVER: special})))
    assert bench.ctx.policy(DRIVER).margin == 7
    assert bench.ctx.policy("other.example.com").margin == 3
    assert bench.ctx.policy(DRIVER).absence_hold == 10


async def test_remembered_errors_are_bounded_in_number_and_size() -> None:
    ctx = Bench().ctx
    for number in range(1100):
        ctx.remember_error(DRIVER, f"uid-{number}", "x" * 10_000)
    assert len(ctx.previous) == 1024
    assert (DRIVER, "uid-0") not in ctx.previous
    assert len(ctx.previous[DRIVER, "uid-1099"]) == 4096


async def test_forgetting_a_claim_forgets_all_of_it() -> None:
    bench = Bench(prepared(A))
    await bench.call(A)
    bench.ctx.remember_error(DRIVER, A.uid, "x")
    bench.ctx.forget([A])
    assert not bench.ctx.previous
    assert not bench.ctx.passed


async def test_a_live_call_knows_its_claims_and_wakes_when_cancelled() -> None:
    bench = Bench()

    plan = Plan((A,), arrived_at=0, deadline=45, policy=RetryPolicy(), held={}, previous={})
    call = LiveCall(DRIVER, (A,), plan)
    assert call.uses("ns", [A.name, "other"])
    assert not call.uses("other", [A.name])
    assert not call.uses("ns", [B.name])
    assert call.uids == {A.uid}
    call.cancel("why")
    assert call.wake.is_set()
    assert bench.ctx.live == set()


async def test_what_was_kept_for_the_reporter_is_handed_over_in_order() -> None:
    backlog, bench = Backlog(), Bench(prepared(A), prepared(B))
    bench.ctx.sink = backlog
    await bench.call(A)
    await bench.call(B)
    backlog.replay(bench)
    assert [fact.outcomes[0].claim for fact in bench.facts] == [A, B]
