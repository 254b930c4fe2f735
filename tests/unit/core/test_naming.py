import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.naming import MAX_NAMES, names, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("device gpu-0 is busy", ("gpu-0",)),
        ("mlx5_7 and 0000:3b:02.1.", ("mlx5_7", "0000:3b:02.1")),
        ('GPU "GPU-11111111-2222" is lost', ("GPU-11111111-2222",)),
        ("claim ml/worker-3:7b0f7d52-91b1-4c57-9f0e-52d0a4f0c1aa", ()),
        ("exit status 3, HTTP2, ipv4, v1beta1, sha256, E2BIG, x86", ()),
        ("/dev/accel2 and /sys/class/net/eth0", ("accel2",)),
        ("gpu.example2.com/v1 and k8s.io and file.json", ()),
        ("plain words only", ()),
    ],
)
def test_what_looks_like_a_device(text: str, found: tuple[str, ...]) -> None:
    assert names(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu-1 (0000:04:00.0) is lost", ("gpu-1",)),
        ("gpu-1 at 0000:04:00.0 is lost", ("gpu-1",)),
        ("gpu-1 and 0000:04:00.0", ("gpu-1", "0000:04:00.0")),
        ("/dev/nvme3n1 failed", ("nvme3n1",)),
        ("/dev/vfio/7 failed", ()),
        ("gpu-1 error at 0000:04:00.0", ("gpu-1", "0000:04:00.0")),
        ("disk /dev/sda, gpu-1", ("sda", "gpu-1")),
        ("error at 04:00.0", ("04:00.0",)),
    ],
)
def test_other_forms_of_a_name(text: str, found: tuple[str, ...]) -> None:
    assert names(text) == found


@given(st.text())
def test_any_text(text: str) -> None:
    assert len(names(text)) <= MAX_NAMES
    assert all(word in text for word, _ in words(text))
