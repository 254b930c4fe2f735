import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.naming import MAX_NAMES, names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("device gpu-0 is busy", ("gpu-0",)),
        ("mlx5_7 and 0000:3b:02.1.", ("mlx5_7", "0000:3b:02.1")),
        ('GPU "GPU-11111111-2222" is lost', ("GPU-11111111-2222",)),
        ("claim ml/worker-3:7b0f7d52-91b1-4c57-9f0e-52d0a4f0c1aa", ()),
        ("exit status 3, HTTP2, ipv4, v1beta1, sha256, E2BIG, x86", ()),
        ("/dev/accel2 and /sys/class/net/eth0", ()),
        ("gpu.example2.com/v1 and k8s.io and file.json", ()),
        ("plain words only", ()),
    ],
)
def test_what_looks_like_a_device(text: str, found: tuple[str, ...]) -> None:
    assert names(text) == found


def test_the_piece_that_matched_comes_first() -> None:
    text = "mode of gpu-1 is fine: gpu-2 is lost: see gpu-3"
    at = text.index("is lost")
    assert names(text, (at, at + 7)) == ("gpu-2",)
    assert len(names(text)) == 3


@given(st.text())
def test_any_text(text: str) -> None:
    assert len(names(text, (0, 1))) <= MAX_NAMES
