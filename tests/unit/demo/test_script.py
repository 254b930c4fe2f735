from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agent.core.model import ClaimRef
from agent.demo.script import DeviceLine, Rule, Script, ScriptFile, write_script

CLAIM = ClaimRef("ns", "uid-1", "train-gpu")
OTHER = ClaimRef("ns", "uid-2", "web-gpu")


def test_the_first_rule_that_fits_and_is_not_used_up_decides(tmp_path: Path) -> None:
    path = tmp_path / "s"
    once, ever = Rule("train", "busy", times=1), Rule("gpu-7", "broken")
    devices = {CLAIM.name: (DeviceLine("r", "p", "gpu-7"),)}
    write_script(path, ScriptFile(devices, (once, ever)))
    script = Script(path)
    taken = [script.take("prepare", CLAIM) for _ in range(3)]
    assert taken == [once, ever, ever]
    assert script.take("prepare", OTHER) is None
    assert script.take("unprepare", CLAIM) is None


def test_a_replaced_file_is_read_and_counts_stay(tmp_path: Path) -> None:
    path = tmp_path / "s"
    once = Rule("train", "busy", times=1)
    write_script(path, ScriptFile({}, (once,)))
    script = Script(path)
    assert script.take("prepare", CLAIM) == once
    write_script(path, ScriptFile({}, (once, Rule("web", "no"))))
    assert script.take("prepare", CLAIM) is None
    assert script.take("prepare", OTHER) == Rule("web", "no")


def test_devices_come_from_the_file_or_are_made_up(tmp_path: Path) -> None:
    write_script(tmp_path / "s", ScriptFile({CLAIM.name: (DeviceLine("r", "p", "gpu-7"),)}, ()))
    script = Script(tmp_path / "s")
    assert [(d.requests, d.pool, d.device) for d in script.devices(CLAIM)] == [
        (("r",), "p", "gpu-7")
    ]
    assert script.devices(OTHER)[0].device == OTHER.name
    assert script.devices(OTHER)[0].requests == ()


def test_a_misspelt_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_text('{"rules": [{"mach": "x"}]}')
    with pytest.raises(msgspec.ValidationError):
        Script(tmp_path / "s").take("prepare", CLAIM)
