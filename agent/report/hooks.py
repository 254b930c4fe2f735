"""Where the reporter tells what it did; metrics hang on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Hooks:
    """Plain functions, called in the event loop; none may raise or block."""

    on_report: Callable[[str, str], None] = _nothing  # kind, result
    on_escalation: Callable[[str, str], None] = _nothing  # driver, rule
    on_outcome: Callable[[str, str, bool, str], None] = _nothing  # driver, action, acted, culprit
