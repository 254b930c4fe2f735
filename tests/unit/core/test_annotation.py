from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import names
from agent.core import annotation
from agent.core.model import Culprit, DeviceState
from agent.core.record import PodRecord
from tests.support.kube_records import (
    GPU,
    NET,
    PARAMETERS,
    WALL,
    claim,
    fact,
    outcome,
    record,
)


def document(made: Any, **more: Any) -> dict[str, Any]:
    text = annotation.render(
        made, mode="enforce", outcome="FailPod", reason="because", wall=WALL, **more
    )
    assert len(text.encode()) <= names.ANNOTATION_LIMIT
    found: dict[str, Any] = json.loads(text)
    return found


def test_format() -> None:
    verdict = replace(PARAMETERS, device="gpu-1")
    claims = [claim("c", "gpu-0", "gpu-1"), claim("n", "eth0", driver=NET)]
    made = record(
        claims,
        fact(outcome("c", verdict=verdict, attempts=2)),
        fact(outcome("n", DeviceState.PREPARED), driver=NET),
    )
    assert document(made) == {
        "version": 1,
        "mode": "enforce",
        "outcome": "FailPod",
        "reason": "because",
        "writtenAt": "2026-11-30T14:26:31.250000Z",
        "devices": [
            {
                "claim": "c",
                "request": "req1",
                "driver": GPU,
                "pool": "node-a",
                "device": "gpu-1",
                "state": "failed",
                "cause": "invalid sharing strategy",
                "verdict": "permanent",
                "culprit": "parameters",
                "rule": "bad-strategy",
                "hint": "Correct the claim's parameters",
                "attempts": 2,
                "firstError": "invalid sharing strategy",
                "lastError": "invalid sharing strategy",
                "firstTime": "2026-11-30T14:26:31Z",
                "lastTime": "2026-11-30T14:26:31Z",
                "traceID": "ab" * 16,
            },
            {
                "claim": "c",
                "request": "req0",
                "driver": GPU,
                "pool": "node-a",
                "device": "gpu-0",
                "state": "blocked",
            },
            {
                "claim": "n",
                "request": "req0",
                "driver": NET,
                "pool": "node-a",
                "device": "eth0",
                "state": "prepared",
            },
        ],
    }


def test_share_id_and_origin_of_parameters() -> None:
    one = claim()
    device = replace(one.devices[0], share_id="s-1", parameters_from="class")
    entry = document(record([replace(one, devices=(device,))], fact(outcome())))["devices"][0]
    assert (entry["shareID"], entry["parametersFrom"]) == ("s-1", "class")


def test_a_prepared_device_that_had_trouble_tells_it() -> None:
    made = record([claim()], fact(outcome("c", DeviceState.PREPARED, attempts=4)))
    entry = document(made)["devices"][0]
    assert (entry["state"], entry["attempts"]) == ("prepared", 4)
    assert entry["firstError"] == "invalid sharing strategy"
    assert "cause" not in entry


def resolved(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**devices[d["sameAs"]], **{k: v for k, v in d.items() if k != "sameAs"}}
        if "sameAs" in d
        else d
        for d in devices
    ]


@pytest.mark.parametrize("text", ["short", "x" * 5000, "\u4e16" * 3000])
@pytest.mark.parametrize("long", [False, True])
def test_128_devices_fit(text: str, long: bool) -> None:
    def name(prefix: str, i: int) -> str:
        return f"{prefix}-{i:03}".ljust(60 if long else 0, "x")

    claims = [claim(name("claim", c), *(name(f"gpu-{c}", i) for i in range(32))) for c in range(4)]
    verdict = replace(PARAMETERS, hint="y" * 2000)
    facts = [fact(outcome(c.name, verdict=verdict, error=text)) for c in claims]
    made = record(claims, *facts)
    found = document(made)
    assert "omitted" not in found
    full = resolved(found["devices"])
    assert {d["device"] for d in full} == {d.device.device for d in made.devices}
    assert all(d["claim"] and d["driver"] == GPU and d["cause"] and d["traceID"] for d in full)
    assert [d["claim"] for d in full] == [d.device.claim.name for d in made.devices]


def test_beyond_all_limits_the_worst_are_kept() -> None:
    claims = [
        claim(f"{i:03}".ljust(250, "c"), "d" * 250, driver=f"{i}." + "x" * 60) for i in range(300)
    ]
    bad = claims[250]
    facts = [fact(outcome(bad.name), driver=bad.devices[0].driver)]
    found = document(record(claims, *facts))
    assert found["devices"][0]["state"] == "failed"
    assert len(found["devices"]) + found["omitted"] == 300
    assert len(found["devices"]) > 20


@settings(max_examples=30)
@given(st.text(max_size=200), st.integers(1, 40))
def test_always_fits_and_parses(text: str, count: int) -> None:
    made = record([claim("c", *(f"d{i}" for i in range(count)))], fact(outcome(error=text * 20)))
    assert len(resolved(document(made)["devices"])) == count


def test_sidecars_keep_each_others_entries() -> None:
    claims = [claim("c", "gpu-0"), claim("n", "eth0", driver=NET)]
    theirs = annotation.render(
        record(claims, fact(outcome("n"), driver=NET)),
        mode="observe", outcome="Report", reason="", wall=WALL,
    )  # fmt: skip
    mine = record(claims, fact(outcome("c", DeviceState.PREPARED)))
    found = {d["device"]: d["state"] for d in document(mine, foreign=theirs)["devices"]}
    assert found == {"gpu-0": "prepared", "eth0": "failed"}
    for junk in ("{", "[]", '{"devices": 1}', '{"devices": [1]}'):
        assert len(document(mine, foreign=junk)["devices"]) == 2


def test_stamps() -> None:
    assert annotation.stamp(WALL) == "2026-11-30T14:26:31Z"
    assert annotation.stamp(0) == ""


def blamed(cause: str, words: str, at: int) -> PodRecord:
    """A device at fault, by `words` that stand at a place of the driver's text."""
    verdict = replace(
        PARAMETERS,
        culprit=Culprit.DEVICE,
        device="gpu-1",
        span=(at, at + len(words)),
        matched=words,
    )
    return record([claim("c", "gpu-0", "gpu-1")], fact(outcome("c", verdict=verdict, error=cause)))


def test_the_words_that_matched_and_where_they_stand() -> None:
    (first, _) = document(blamed("oh: gpu-1 is gone", "gpu-1 is gone", 4))["devices"]
    assert (first["matched"], first["matchedAt"]) == ("gpu-1 is gone", [4, 17])


@pytest.mark.parametrize(
    ("cause", "at"),
    [
        ("x" * 3000 + " gpu-1 is gone", 3001),
        ("x" * 1015 + " gpu-1 is gone and more", 1016),
        ("dra-agent: gpu.example.com: permanent (device gpu-1): gpu-1 is gone", 0),
    ],
)
def test_positions_that_are_not_those_of_the_cause_are_left_out(cause: str, at: int) -> None:
    (first, _) = document(blamed(cause, "gpu-1 is gone", at))["devices"]
    assert first["matched"] == "gpu-1 is gone"
    assert "matchedAt" not in first


def test_a_cause_that_is_cut_to_fit_loses_positions_beyond_the_cut() -> None:
    devices = [f"gpu-{n}" for n in range(60)]
    for at, kept in ((4, True), (700, False)):
        cause = "x" * at + "gpu-1 is gone" + "y" * 2000
        verdict = replace(
            PARAMETERS,
            culprit=Culprit.DEVICE,
            device="gpu-1",
            span=(at, at + 13),
            matched="gpu-1 is gone",
        )
        claims = [claim(f"c{n}", "gpu-1") for n in range(len(devices))]
        facts = [fact(outcome(f"c{n}", verdict=verdict, error=cause)) for n in range(len(devices))]
        first = document(record(claims, *facts))["devices"][0]
        assert len(first["cause"]) < 700
        assert ("matchedAt" in first) is kept
