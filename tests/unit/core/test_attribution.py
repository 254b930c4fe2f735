from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.attribution import blame, find, point
from agent.core.context import SliceDevice
from agent.core.identity import normal
from agent.core.model import Culprit, Device, Kind, Verdict
from tests.support.kube_records import GPU, NET, ref

UUID = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
POOL = [
    SliceDevice(
        GPU,
        "node-a",
        f"gpu-{i}",
        {
            "uuid": UUID[:-1] + str(i),
            "resource.kubernetes.io/pciBusID": f"0000:0{i}:00.0",
            "minor": str(i + 1),  # off by one from the index, as happens
            "index": str(i),
        },
    )
    for i in range(4)
]


def device(name: str, driver: str = GPU, pool: str = "node-a") -> Device:
    return Device(ref(), "req", driver, pool, name)


MINE = [device("gpu-1"), device("gpu-2"), device("gpu-1", NET)]
DEVICE = Verdict(Kind.PERMANENT, Culprit.DEVICE, "gone", device="gpu-1", span=(4, 20))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("gpu-1", "gpu-1"),
        ("gpu-3", None),  # exists, but is another claim's
        ("gpu-9", None),
        ("GPU-1", None),  # names are exact
        (UUID[:-1] + "2", "gpu-2"),
        (UUID[:-1].lower() + "2", "gpu-2"),
        (UUID[:-1] + "3", None),
        ("0000:01:00.0", "gpu-1"),
        ("00000000:02:00.0", "gpu-2"),
        ("01:00.0", "gpu-1"),  # no domain: 0000 is meant
        ("03:00.0", None),
        ("3", None),  # minor of gpu-2, index of gpu-3
        ("0", None),  # index of gpu-0
        ("", None),
    ],
)
def test_what_a_text_names(said: str, found: str | None) -> None:
    place = find(GPU, said, MINE, POOL)
    assert place == (found and (GPU, "node-a", found))


def test_without_slices_only_names_are_known() -> None:
    assert find(GPU, "gpu-1", MINE) == (GPU, "node-a", "gpu-1")
    assert find(GPU, UUID[:-1] + "1", MINE) is None


def test_the_claims_own_attributes_count_too() -> None:
    mine = [replace(device("gpu-1"), attributes={"uuid": UUID}), device("gpu-2")]
    assert find(GPU, UUID, mine) == (GPU, "node-a", "gpu-1")


def test_the_same_name_in_two_pools_of_the_claim_is_ambiguous() -> None:
    mine = [device("gpu-1"), device("gpu-1", pool="node-a-2")]
    assert find(GPU, "gpu-1", mine) is None


def test_shares_of_one_device_are_one_device() -> None:
    mine = [replace(device("gpu-1"), share_id=share) for share in "ab"]
    assert find(GPU, "gpu-1", mine) == (GPU, "node-a", "gpu-1")


def test_an_identifier_that_two_devices_bear_is_nobodys() -> None:
    twins = [replace(each, attributes={"uuid": UUID}) for each in POOL[1:3]]
    assert find(GPU, UUID, [device("gpu-1")], twins) is None


def test_another_driver_is_never_blamed() -> None:
    assert find(NET, "gpu-2", MINE, POOL) is None


def test_blame_says_who_and_where() -> None:
    found = blame(GPU, DEVICE, MINE, POOL)
    assert found is not None
    assert (found.place, found.rule, found.span, found.at_fault) == (
        (GPU, "node-a", "gpu-1"), "gone", (4, 20), True,
    )  # fmt: skip
    other = blame(GPU, replace(DEVICE, culprit=Culprit.PARAMETERS), MINE, POOL)
    assert other is not None
    assert not other.at_fault
    assert blame(GPU, replace(DEVICE, device=None), MINE, POOL) is None


@given(
    st.text(max_size=20) | st.sampled_from([f"gpu-{i}" for i in range(4)] + ["0", "1", UUID]),
    st.sets(st.integers(0, 3)),
)
def test_innocent_devices_are_never_blamed(said: str, owned: set[int]) -> None:
    mine = [device(f"gpu-{i}") for i in sorted(owned)]
    found = find(GPU, said, mine, POOL)
    if found is not None:
        assert found in {(d.driver, d.pool, d.device) for d in mine}
        bearing = [
            d
            for d in POOL
            if d.device == said or normal(said) in map(normal, d.attributes.values())
        ]
        assert [d.place for d in bearing if d.device == said] in ([], [found])
        assert found in {d.place for d in bearing}


ODD = SliceDevice(
    GPU,
    "node-a",
    "accel-a",
    {
        "uuid": "5f1b2c3d-1111-2222-3333-444455556666",
        "minor": "7",
        "index": "5",
        "acme.example/vfName": "pf0vf3",
        "pfName": "pf0",
        "mac": "0C:42:A1:00:00:01",
        "pciAddress": "0001:09:00.0",
    },
)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("gpu-1 has fallen off", "gpu-1"),
        (f"device {UUID[4:-1]}1 is lost", "gpu-1"),
        ("error at 01:00.0", "gpu-1"),
        ("gpu-1 (0000:01:00.0) is lost", "gpu-1"),
        ("gpu-1 (0000:1f:00.0) is lost", "gpu-1"),  # the same thing, whatever the address is
        ("GPU minor 3 is lost", "gpu-2"),
        ("minor number 2", "gpu-1"),
        ("GPU 1 is lost", "gpu-1"),
        ("index=2", "gpu-2"),
        ("/dev/acme3 is lost", "gpu-2"),
        ("/dev/accel/acme7", "accel-a"),
        ("accel-a is lost", "accel-a"),
        ("node-a/accel-a is lost", "accel-a"),
        ("5F1B2C3D-1111-2222-3333-444455556666", "accel-a"),
        ("GPU-5f1b2c3d-1111-2222-3333-444455556666", "accel-a"),
        ("NIC 0c:42:a1:00:00:01", "accel-a"),
        ("VF pf0vf3 is lost", "accel-a"),
        ("pf0 is lost", None),  # its parent
        ("09:00.0 is lost", None),  # another domain
        ("gpu-1 and gpu-2", None),
        ("gpu-1, the neighbour of gpu-3", None),
        ("gpu-10 is lost", None),
        ("gpu-1-mig-0 is lost", None),
        ("3 errors on 1 device", None),
        ("GPU 3 is lost", None),
        ("GPU 8, not gpu-1", None),
        ("/dev/sda3 is lost", None),
        ("/dev/acme9 blocks gpu-1", None),
        ("gpu is lost", None),
        ("", None),
    ],
)
def test_what_words_point_to(said: str, found: str | None) -> None:
    mine = [*MINE, device("accel-a"), device("gpu")]
    assert point(GPU, said, mine, [*POOL, ODD]) == (found and (GPU, "node-a", found))


def test_the_words_around_the_match_decide_where_the_rule_named_nothing() -> None:
    said = replace(DEVICE, device=None, where="GPU 1 is lost")
    found = blame(GPU, said, MINE, POOL)
    assert found is not None
    assert found.place == (GPU, "node-a", "gpu-1")
    assert blame(GPU, replace(said, where="gpu-1 or gpu-3", device="gpu-1"), MINE, POOL) is None


@given(st.text(alphabet="gpu-0123 /dev:.()", max_size=60), st.sets(st.integers(0, 3)))
def test_words_never_point_to_a_device_of_another_claim(said: str, owned: set[int]) -> None:
    mine = [device(f"gpu-{i}") for i in sorted(owned)]
    found = point(GPU, said, mine, POOL)
    assert found is None or found in {(d.driver, d.pool, d.device) for d in mine}
