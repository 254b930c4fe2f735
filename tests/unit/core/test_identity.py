import pytest

from agent.core.identity import forms, identifiers, identifying, normal, number, worth_keeping

UUID = "5f1b2c3d-1111-2222-3333-444455556666"


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


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("acme.example/vfName", "pf0vf3", True), ("devicePath", "/dev/acme3", True),
        ("minor", "3", True), ("model", "A100", False), ("productName", "H100 80GB", False),
        ("pfName", "eth0", False), ("driverVersion", "570.1a", False), ("memory", "40", False),
        ("colour", "red", False), ("parentUUID", UUID, False), ("switchName", "sw0a", False),
    ],
)  # fmt: skip
def test_attributes_worth_keeping(name: str, value: str, wanted: bool) -> None:
    assert worth_keeping(name, value) is wanted
    assert (normal(value) in identifiers({name: value})) is wanted


def test_numbers() -> None:
    assert number({"acme.example/minor": "3", "index": "1"}, "minor") == "3"
    assert number({"gpuIndex": "1"}, "index") == "1"
    assert number({"index": "1", "cardIdx": "2"}, "index") is None
    assert number({}, "minor") is None


def test_forms() -> None:
    assert forms("0000:04:00.0") == ("0000:04:00.0", "04:00.0")
    assert forms("0001:04:00.0") == ("0001:04:00.0",)
    assert forms(f"gpu-{UUID}") == (f"gpu-{UUID}", UUID)
    assert forms("eth0") == ("eth0",)
