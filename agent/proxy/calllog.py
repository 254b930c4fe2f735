"""One log line per call: what happened, in the words that metric and trace use too."""

from __future__ import annotations

import logging

from agent.core.model import CallFact, DeviceState
from agent.core.text import clean

log = logging.getLogger("agent.call")

_TEXT = 400  # characters of a driver's text in a log line


def prepared(fact: CallFact, reason: str) -> None:
    """Log the end of a prepare call."""
    failed = [outcome for outcome in fact.outcomes if outcome.state is DeviceState.FAILED]
    attempts = max((outcome.attempts for outcome in fact.outcomes), default=0)
    extra: dict[str, object] = {
        "driver": fact.driver,
        "claims": [f"{o.claim.namespace}/{o.claim.name}" for o in fact.outcomes[:8]],
        "attempts": attempts,
        "seconds": round(fact.duration, 3),
        "trace_id": fact.trace_id,
    }
    if not failed:
        retried = attempts > 1
        log.log(logging.INFO if retried else logging.DEBUG, "prepared", extra=extra)
        return
    worst = failed[0]
    verdict = worst.verdict
    extra["why"] = reason
    extra["error"] = clean(worst.last_error, _TEXT)
    if verdict is not None:
        extra |= {"verdict": str(verdict.kind), "culprit": str(verdict.culprit)}
        extra |= {"rule": verdict.rule, "device": verdict.device or ""}
    log.warning("prepare held back" if worst.held else "prepare failed", extra=extra)


def unprepared(driver: str, claims: int, seconds: float, error: str) -> None:
    """Log the end of an unprepare call."""
    extra = {"driver": driver, "claims": claims, "seconds": round(seconds, 3)}
    if error:
        log.warning("unprepare failed", extra=extra | {"error": clean(error, _TEXT)})
    else:
        log.debug("unprepared", extra=extra)
