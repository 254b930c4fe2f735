from __future__ import annotations

from agent.demo.periods import REAL, REAL_RESYNC, SHORT, SHORTENED_BY
from agent.settings.model import AgentConfig


def test_the_defaults_are_kubelets_own() -> None:
    assert (REAL.resync, REAL.deadline, REAL.unprepare_retry) == ((60, 90), 45, (10, 15))
    assert (REAL.dial, REAL.get_info, REAL.notify, REAL.wipe) == (10, 1, 5, 30)


def test_the_demo_says_truly_by_how_much_it_shortens() -> None:
    assert SHORT.resync == tuple(seconds / SHORTENED_BY for seconds in REAL_RESYNC)


def test_the_agents_unchanged_periods_fit_into_the_shortened_deadline() -> None:
    config = AgentConfig()
    assert SHORT.deadline - config.retry.margin > config.drivers.driver_absence_hold
    assert SHORT.get_info == REAL.get_info > config.registration_settings.overlay.get_info_delay
