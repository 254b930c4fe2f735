from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent import names
from agent.core.instances import Candidate, choose, lists

BOTH = ("v1.DRAPlugin", "v1beta1.DRAPlugin")


def candidate(key: int, *, connected: bool = True, versions: tuple[str, ...] = BOTH) -> Candidate:
    return Candidate(key, appeared=key, connected=connected, versions=versions)


def test_the_most_recently_appeared_wins() -> None:
    fit = choose([candidate(2), candidate(3), candidate(1)], names.SERVICE_V1)
    assert fit is not None
    assert fit.key == 3


def test_one_that_is_not_connected_is_passed_over() -> None:
    fit = choose([candidate(1), candidate(2, connected=False)], names.SERVICE_V1)
    assert fit is not None
    assert fit.key == 1


def test_one_that_does_not_list_the_service_is_passed_over() -> None:
    old = candidate(1, versions=("v1beta1.DRAPlugin",))
    new = candidate(2, versions=("v1.DRAPlugin",))
    assert choose([old, new], names.SERVICE_V1BETA1) == old
    assert choose([old, new], names.SERVICE_V1) == new
    assert choose([new], names.SERVICE_V1BETA1) is None


def test_services_that_kubelet_does_not_choose_by_the_list_go_to_the_newest() -> None:
    assert lists((), "v1.DRAResourceHealth")
    assert lists((), "k8s.io.kubelet.pkg.apis.dra.v9.DRAPlugin")
    assert not lists(("v9.DRAPlugin",), names.SERVICE_V1)


def test_nobody() -> None:
    assert choose([], names.SERVICE_V1) is None


@given(
    st.lists(
        st.builds(
            Candidate,
            key=st.integers(0, 9),
            appeared=st.integers(0, 99),
            connected=st.booleans(),
            versions=st.sampled_from([BOTH, BOTH[:1], BOTH[1:], ()]),
        )
    )
)
def test_nobody_better_is_left(candidates: list[Candidate]) -> None:
    fit = choose(candidates, names.SERVICE_V1)
    able = [c for c in candidates if c.connected and "v1.DRAPlugin" in c.versions]
    assert (fit is None) == (not able)
    assert fit is None or all(c.appeared <= fit.appeared for c in able)
