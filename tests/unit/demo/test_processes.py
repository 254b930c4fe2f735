from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agent.demo.processes import Child, TookTooLong, json_lines, until

IGNORING = "import signal,time; signal.signal(15, signal.SIG_IGN); print('on', flush=True)"


async def test_a_child_gets_a_clean_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x")
    code = "import os, agent; print(os.environ.get('OTEL_EXPORTER_OTLP_ENDPOINT'))"
    child = Child(("-c", code), output=tmp_path / "out")
    await child.start()
    assert await child.wait() == 0
    assert child.text() == "None\n"


async def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = f"{IGNORING}\nwhile True: time.sleep(1)"
    child = Child(("-c", code), output=tmp_path / "out")
    await child.start()
    await until(lambda: "on" in child.text(), "it to be up")
    await child.end(limit=0.2)
    assert child.returncode == -signal.SIGKILL
    child.send(signal.SIGTERM)  # of one that is gone: nothing


async def test_a_child_never_started_can_be_ended(tmp_path: Path) -> None:
    child = Child(("-c", ""), output=tmp_path / "out")
    await child.end()
    assert child.returncode is None
    assert child.text() == ""


async def test_waiting_says_for_what() -> None:
    with pytest.raises(TookTooLong, match="the moon"):
        await until(lambda: False, "the moon", limit=0.05)


def test_half_lines_and_other_text_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"a": 1}\nTraceback\n3\n{"b": ')
    assert list(json_lines(tmp_path / "f")) == [{"a": 1}]
    assert list(json_lines(tmp_path / "missing")) == []
