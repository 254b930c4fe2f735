from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.attribution import blame, find, identifying, normal
from agent.core.context import SliceDevice
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
        ("01:00.0", None),  # no domain: not exact
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


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("uuid", True), ("gpu.nvidia.com/uuid", True), ("parentUUID", False), ("index", True),
        ("resource.kubernetes.io/pciBusID", True), ("resource.kubernetes.io/pcieRoot", False),
        ("dra.net/ifName", True), ("PFName", False), ("pfPciAddress", False), ("minor", True),
        ("numaNode", False), ("productName", False), ("driverVersion", False), ("cardIdx", True),
        ("serialNumber", True), ("architecture", False), ("pciAddress", True), ("mac", True),
    ],
)  # fmt: skip
def test_identifying_attributes(name: str, wanted: bool) -> None:
    assert identifying(name) is wanted


def test_normal_form() -> None:
    assert normal("0000:AF:00.1") == normal("00000000:af:00.1") == "0000:af:00.1"
    assert normal("0001:af:00.1") != normal("0000:af:00.1")
    assert normal("AA:BB:cc:dd:ee:ff") == "aa:bb:cc:dd:ee:ff"
    assert normal("Gpu-0") == "Gpu-0"


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
