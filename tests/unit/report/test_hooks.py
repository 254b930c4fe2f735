from __future__ import annotations

from agent.report.hooks import Hooks


def test_nobody_has_to_listen() -> None:
    hooks = Hooks()
    hooks.on_report("event", "ok")
    hooks.on_escalation("driver", "rule")
    hooks.on_outcome("driver", "Report", True, "unknown")
