from __future__ import annotations

from agent.core.steps import RetryPolicy


def test_delay_doubles_up_to_its_limit() -> None:
    policy = RetryPolicy(initial_delay=1.0, max_delay=5.0, jitter=0.5)
    assert [policy.delay(n, 0.0) for n in (1, 2, 3, 4, 100)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert policy.delay(2, 0.5) == 1.5
