from __future__ import annotations

import json
from pathlib import Path

from agent import names
from agent.demo.calls import read_calls


def line(pid: int, what: str, call: int, claim: str, error: str = "") -> str:
    entry = {"t": 10.0 + call, "pid": pid, "what": what, "call": call, "error": error}
    return json.dumps({**entry, "method": f"/x/{names.PREPARE}", "claims": [claim]})


def test_starts_and_ends_are_matched_within_their_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [
        line(1, "start", 1, "p-gpu"),
        line(2, "start", 1, "pq-gpu"),
        line(2, "end", 1, "pq-gpu", "no"),
        json.dumps({"t": 1.0, "pid": 2, "what": "notified"}),
    ]
    log.write_text("\n".join(lines))
    calls = read_calls(log, names.PREPARE)
    assert [(call.claims, call.ended, call.error) for call in calls] == [
        (("p-gpu",), 0.0, ""),
        (("pq-gpu",), 11.0, "no"),
    ]
    assert [call.claims for call in read_calls(log, names.PREPARE, "p")] == [("p-gpu",)]
    assert read_calls(log, names.UNPREPARE) == []
    assert read_calls(tmp_path / "missing", names.PREPARE) == []
