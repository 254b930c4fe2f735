from __future__ import annotations

import math

from agent.core.retire import Generation, Patience, View, kubelet_order, never_taken, superseded

PATIENCE = Patience(retire_after=60.0, recheck=0.1)
IDLE = View(0, True)


def generation(name: str, *, registered: float | None = None) -> Generation:
    return Generation(name, published_at=0.0, registered_at=registered, connected_at=registered)


def test_the_older_goes_when_kubelet_has_had_the_newer_for_long() -> None:
    live = [generation("a", registered=0.0), generation("b", registered=10.0)]
    views = {"a": IDLE, "b": IDLE}
    assert superseded(live, 69.9, views, PATIENCE) == (None, 70.0)
    assert superseded(live, 70.0, views, PATIENCE)[0] is live[0]


def test_a_call_in_flight_keeps_it() -> None:
    live = [generation("a", registered=0.0), generation("b", registered=10.0)]
    views = {"a": View(1, True), "b": IDLE}
    assert superseded(live, 80.0, views, PATIENCE) == (None, 80.1)


def test_a_newer_one_without_a_connection_or_registration_counts_for_nothing() -> None:
    live = [generation("a", registered=0.0), generation("b", registered=10.0)]
    lost = {"a": IDLE, "b": View(0, False)}
    assert superseded(live, 500.0, lost, PATIENCE) == (None, math.inf)
    live = [generation("a", registered=0.0), generation("b")]
    assert superseded(live, 500.0, {"a": IDLE, "b": IDLE}, PATIENCE) == (None, math.inf)


def test_after_a_restart_kubelets_order_decides() -> None:
    live = [generation("a", registered=11.0), generation("b", registered=10.0)]
    assert [g.name for g in kubelet_order(live)] == ["b", "a"]
    assert superseded(live, 71.0, {"a": IDLE, "b": IDLE}, PATIENCE)[0] is live[1]


def test_one_whose_socket_was_removed_goes_when_nobody_is_connected() -> None:
    live = [generation("a", registered=0.0), generation("b", registered=10.0)]
    live[1].removed, live[1].registered_at = True, None
    assert [g.name for g in kubelet_order(live)] == ["b", "a"]
    assert superseded(live, 20.0, {"a": IDLE, "b": IDLE}, PATIENCE) == (None, 20.1)
    assert superseded(live, 20.0, {"a": IDLE, "b": View(1, False)}, PATIENCE) == (None, 20.1)
    assert superseded(live, 20.0, {"a": IDLE, "b": View(0, False)}, PATIENCE)[0] is live[1]
    # However it lost its socket: one that kubelet keeps its connection to goes as any other.
    assert superseded(live, 60.0, {"a": IDLE, "b": IDLE}, PATIENCE)[0] is live[1]


def test_never_taken_spares_the_latest_and_those_kubelet_has() -> None:
    nobody = View(0, False)
    live = [generation("a", registered=1.0), generation("b"), generation("c")]
    views = {"a": nobody, "b": nobody, "c": nobody}
    assert never_taken(live, 59.0, views, PATIENCE) == (None, 60.0)
    assert never_taken(live, 60.0, views, PATIENCE)[0] is live[1]
    assert never_taken([live[0], live[2]], 900.0, views, PATIENCE) == (None, math.inf)
