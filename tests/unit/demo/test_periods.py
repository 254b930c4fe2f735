from __future__ import annotations

from pathlib import Path

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


def test_the_page_about_the_demo_has_the_same_numbers() -> None:
    page = (Path(__file__).parents[3] / "docs" / "demo.md").read_text()
    rows = {line.split(" | ")[0].strip("| "): line for line in page.splitlines() if "|" in line}
    for row, real, short in (
        ("asks again after a failed prepare", span(REAL.resync), span(SHORT.resync)),
        ("repeats a failed unprepare", span(REAL.unprepare_retry), span(SHORT.unprepare_retry)),
        ("deadline of a call", f"{REAL.deadline:g} s", f"{SHORT.deadline:g} s"),
        ("looks for new registration sockets", f"{REAL.reconcile:g} s", f"{SHORT.reconcile:g} s"),
        (
            "longest pause between registration attempts",
            f"{REAL.register_backoff[1]:g} s",
            f"{SHORT.register_backoff[1]:g} s",
        ),
        (
            "deletes the ResourceSlices of a driver that is away",
            f"after {REAL.wipe:g} s",
            f"after {SHORT.wipe:g} s",
        ),
        ("puts its pod status back", f"every {REAL.status:g} s", f"every {SHORT.status:g} s"),
    ):
        assert rows[row] == f"| {row} | {real} | {short} |"


def span(seconds: tuple[float, float]) -> str:
    return f"{seconds[0]:g}-{seconds[1]:g} s"
