from __future__ import annotations

import io
import json

import pytest

from agent import names
from agent.demo.show import WIDTH, Printer
from agent.demo.timeline import CREATED, Entry


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal_and_never_under_no_color(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream, coloured in ((Terminal(), True), (io.StringIO(), False)):
        Printer(stream).line("x", "red")
        assert ("\x1b[" in stream.getvalue()) is coloured
    monkeypatch.setenv("NO_COLOR", "1")
    Printer(stream := Terminal()).line("x", "red")
    assert stream.getvalue() == "x\n"


def test_no_line_is_wider_than_the_terminal_and_hostile_text_is_harmless() -> None:
    printer = Printer(stream := io.StringIO())
    entries = [Entry(10.0, "pod", CREATED), Entry(11.5, "driver", "fails: \x1b[2J " + "word " * 60)]
    printer.timeline("without the agent", entries)
    printer.line("x" * 300)
    printer.paragraph("word " * 60, 5)
    lines = stream.getvalue().splitlines()
    assert max(len(line) for line in lines) <= WIDTH
    assert "\x1b" not in stream.getvalue()
    assert lines[1].split() == ["0.00", "s", "pod", "created"]
    assert lines[2].split()[0] == "1.50"


def test_the_pods_own_status_is_shown_with_a_line_per_device() -> None:
    printer = Printer(stream := io.StringIO())
    devices = [
        {
            "device": "gpu-5",
            "state": "failed",
            "verdict": "permanent",
            "culprit": "device",
            "attempts": 1,
            "claim": "p-gpu",
            "cause": "a: b: no such gpu",
        },
        {"device": "gpu-4", "state": "blocked", "claim": "p-gpu"},
    ]
    condition = {
        "type": names.CONDITION_PREPARED,
        "status": "False",
        "reason": names.REASON_SOME_FAILED,
        "message": "1 of 2",
    }
    pod = {
        "metadata": {"annotations": {names.ANNOTATION_FAILURES: json.dumps({"devices": devices})}},
        "status": {"phase": "Pending", "conditions": [{"type": "Ready"}, condition]},
    }
    printer.pod(pod)
    text = stream.getvalue()
    assert f"{names.CONDITION_PREPARED}=False ({names.REASON_SOME_FAILED})" in text
    assert "Ready" not in text
    rows = [line.split() for line in text.splitlines()[-3:]]
    assert rows[0] == ["gpu-5", "failed", "permanent", "device", "1", "p-gpu"]
    assert rows[1] == ["cause:", "a:", "b:", "no", "such", "gpu"]
    assert rows[2] == ["gpu-4", "blocked", "-", "-", "-", "p-gpu"]
