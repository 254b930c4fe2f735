"""Which device a text blames: the clause that a rule matched, and no other."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.commands import corpus
from agent.core import clauses
from agent.core.classify import RuleSet
from agent.settings.model import Rules
from agent.settings.rulefiles import load_rules

BUILTIN: RuleSet = load_rules(Rules())
NAMES = ("gpu-1", "npu-1", "nic-1", "vf-3", "eth1")
ATTRIBUTES = {
    "uuid": "GPU-5f1b2c3d-1111-2222-3333-444455556666",
    "pciBusID": "0000:04:00.0",
    "minor": {"int": 3},
    "index": {"int": 2},
}
# Each names a device of the claim, and none says that it is at fault.
INNOCENT = [
    "cannot attach vf-3: parent PF is busy",
    "prepare npu-1: the switch between the cards timed out",
    "prepare gpu-1: reset of sibling device in progress",
    "gpu-1 waits for the fabric card, which is resetting",
    "link of gpu-1 to switch: switch port not ready",
    "prepare nic-1: firmware of the DPU is too old",
    "cannot move eth1 into pod: PF port down, waiting for link",
    "prepare gpu-1: device gpu in slot A has been lost",
    "gpu-1 asked for, but its neighbour failed permanently",
    "refusing gpu-1 because the PCIe switch reports a fatal PCIe error",
    "npu-1 prepared, rolling back: another card is broken, hardware fault",
    "gpu-1 OK, NVLink peer has fallen off the bus",
    "writing CDI file for gpu-1: disk media error on /dev/sda",
    "health daemon of gpu-1: memory failure on the host",
    "allocating gpu-1 rejected; chassis thermal fault",
    "claim wants gpu-1 but the driver fell over: bad block in state file",
    "fan fault in chassis, refusing gpu-1",
    "machine check on CPU0 while preparing gpu-1",
    "prepare gpu-1: bad sectors on the system disk",
    "could not restore gpu-1: controller of disk pool timed out",
    "setting up gpu-1: memory controller of the host did not respond in time",
    "gpu-1: PSU power fault in rack",
    "prepare gpu-1: parent switch has fallen off the bus",
    "cannot add gpu-1 to link group: peer of gpu-1 marked faulty",
    "gpu-1 healthy, but node memory: uncorrectable ECC in host DIMM",
    "device gpu-1: reset in progress on sibling gpu-4",
    "configure gpu-1: daemon timed out",
    "while releasing gpu-1 the sibling gpu-2 was found dead: gpu-2 has fallen off the bus",
    "hardware fault on gpu-4, cannot prepare gpu-1",
    "gpu-1 is healthy; switch has fallen off the bus",
    "the device next to gpu-1 has fallen off the bus",
    "uncorrectable ECC error in system memory while mapping gpu-1",
    "prepare gpu-1: uncorrectable ECC error in DIMM A1",
    "prepare gpu-1: hardware failure of the root complex",
    "gpu-1's peer is dead: hardware fault",
    "device group of gpu-1 is incomplete: device gpu-7 is lost",
    "unrelated hardware fault logged during prepare of gpu-1",
    "gpu-1 could not be locked: NVMe /dev/nvme0n1 media error",
    "preparing gpu-1 stopped, as a medium error was seen on /dev/md0",
    "gpu-1 not touched: the retimer failed permanently",
    "disk hosting the state of gpu-1 has bad blocks",
    "machine check exception, gpu-1 not prepared",
    "chassis fan fault (gpu-1 requested)",
    "gpu-1 needs gpu-2 which has fallen off the bus",
    "refusing gpu-1: GPU 0 has fallen off the bus",
    "failed to bind gpu-1: IOMMU hardware error",
    "not preparing gpu-1: broken riser: hardware failure",
    "gpu-1: prepare aborted, gpu-3 fell off the bus",
    "cannot use gpu-1: GPU-aaaabbbb-1111-2222-3333-444455556666 has fallen off the bus",
    "cannot use gpu-1 until its NVLink neighbor recovers: neighbor is resetting",
    "prepare of gpu-1 and gpu-2: one of them has fallen off the bus",
    "gpu-1 is mounted in bay 2, bay controller timed out",
    "gpu-1 shares a bus with a card that is dead: hardware fault",
    "writing spec of gpu-1: I/O: medium error",
]
GUILTY = [
    "gpu-1 has fallen off the bus",
    "prepare failed: gpu-1: hardware fault",
    "GPU gpu-1 (0000:04:00.0) has fallen off the bus",
    "0000:04:00.0: uncorrectable error",
    "GPU at 04:00.0 has fallen off the bus",
    "device gpu-1: in fatal state",
    "gpu-1 on node worker-3 has fallen off the bus",
    "uncorrectable error on gpu-1",
    "device gpu-1 is resetting, please wait",
    "could not reset: device minor 3 is wedged",
    "GPU 2: uncorrectable ECC error",
    "GPU[5f1b2c3d-1111-2222-3333-444455556666] has fallen off the bus",
    "/dev/acme3: hardware fault",
    "a hardware fault was detected on gpu-1",
    "gpu-2 is fine; gpu-1 has fallen off the bus",
    "gpu-2 is fine, gpu-1 has fallen off the bus",
    "[gpu-2 is busy, gpu-1 has fallen off the bus]",
]


def blamed(text: str, *, known: bool = True) -> str | None:
    """Whom `explain --jsonl` blames, with all devices of the claim known or none."""
    attributes = {"gpu-1": ATTRIBUTES}
    devices = [
        {"driver": "d.example", "pool": "n", "device": name, "attributes": attributes.get(name, {})}
        for name in NAMES
    ]
    line: dict[str, object] = {"driver": "d.example", "text": text}
    if known:
        line["devices"] = devices
    (entry,) = corpus.entries(json.dumps(line), "t")
    return corpus.blamed(entry, BUILTIN.explain(entry.failure))


@pytest.mark.parametrize("text", INNOCENT)
def test_a_bystander_is_not_blamed(text: str) -> None:
    assert blamed(text) is None
    assert blamed(text, known=False) not in NAMES


@pytest.mark.parametrize("text", GUILTY)
def test_the_device_that_the_words_speak_of_is_blamed(text: str) -> None:
    assert blamed(text) == "gpu-1"


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("a: gpu-1 is lost", "is lost", "a: gpu-1 is lost"),
        ("gpu-1: thermal trip, card is off", "is off", "gpu-1: thermal trip, card is off"),
        ("device is lost: gpu-1", "is lost", "device is lost: gpu-1"),
        ("preparing gpu-1: card is lost", "is lost", "card is lost"),
        ("gpu-1 failed: device is lost", "is lost", "gpu-1 failed: device is lost"),
        ("refusing gpu-1 because a fan is lost", "is lost", "a fan is lost"),
        ("gpu-1 OK; gpu-2 is lost", "is lost", "gpu-2 is lost"),
        ("peer of gpu-1 is lost", "is lost", ""),
    ],
)
def test_the_words_that_a_match_speaks_of(text: str, words: str, found: str) -> None:
    at = text.index(words)
    assert clauses.subject(text, (at, at + len(words))) == found


def test_no_word_is_cut() -> None:
    text = "gpu-12 " * 200 + "is lost " + "gpu-34 " * 200
    at = text.index("is lost")
    said = clauses.subject(text, (at, at + 7))
    assert set(said.split()) == {"gpu-12", "gpu-34", "is", "lost"}
    assert len(said) < 1000


@given(st.text(alphabet="ab1 :;,.-[]", max_size=200), st.integers(0, 200), st.integers(0, 50))
def test_any_text(text: str, start: int, length: int) -> None:
    start = min(start, len(text))
    span = (start, min(len(text), start + length))
    assert clauses.subject(text, span) in text
    for begin, end in clauses.others(text, span):
        assert 0 <= begin <= end <= len(text)
