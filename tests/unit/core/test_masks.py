import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.masks import layers, names
from agent.core.parts import mask


@pytest.mark.parametrize(
    "layer",
    [
        "NodePrepareResources: ", "node worker-3: ", "on node a.example.local: ", "[host-a] ",
        "could not complete prepare: ", "handler failed: ", "while checking state: ",
        "kubelet plugin: ", "retry 3 of 5: ", "prepare (timeout 30s): ", "level=error msg=",
        "E0102 10:11:12.000001 1 driver.go:77] ", "rpc error: code = Internal desc = ",
        "node a-1: handler failed: prepare: ", "failed to prepare claim team/busy-1: ",
        "claim a/b, request gpu: ",
    ],
)  # fmt: skip
def test_layers_that_say_who_or_where_are_blanked_out(layer: str) -> None:
    said = f"{layer}not implemented: node busy"
    assert layers(said) == "_" * (len(layer) - 2) + ": not implemented: node busy"


@pytest.mark.parametrize(
    "said",
    [
        "driver not loaded: x", "node not ready: x", "state: x", "gpu-1: is busy",
        "lock: timed out",
        "node worker-3", "kubelet plugin: ", "device plugin is busy: x", "config: invalid mode",
        "rpc error: code = DeadlineExceeded desc = x", "failed to load module: x",
        "rpc error: code = Unknown desc = context deadline exceeded", "firmware of node a-1: bad",
    ],
)  # fmt: skip
def test_layers_that_say_more_stay(said: str) -> None:
    assert layers(said) == said


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("gpu-unsupported-4: gone", "gpu-xxxxxxxxxxx-4: gone"),
        ("busy-0 and retry0", "xxxx-0 and xxxxx0"),
        ("_____-busy-0", "_____-xxxx-0"),
        ("/var/run/x.busy.example.com-claim.json", "/var/run/x.xxxx.xxxxxxx.com-claim.json"),
        ("host-gpu-1", "xxxx-gpu-1"),
        ("read /mnt/busy/checkpoint.json", "read /xxx/xxxx/checkpoint.json"),
        ("open /usr/bin/x", "open /usr/bin/x"),
        ("write /sys/fs/cgroup/cpuset.cpus: busy", "write /sys/fs/cgroup/cpuset.cpus: busy"),
        ("/dev/accel/accel5: busy", "/dev/accel/accel5: busy"),
        ("driver busy.example.com/v2", "driver xxxx.xxxxxxx.com/v2"),
        ("/var/run/x/busy.example.com", "/var/run/x/xxxx.xxxxxxx.com"),
        ("resourceclaims.resource.k8s.io is busy", "resourceclaims.resource.k8s.io is busy"),
        ("0000:af:00.1 busy", "device------ busy"),
        ("exit status 3, ipv4, E2BIG, sr-iov", "exit status 3, ipv4, E2BIG, sr-iov"),
        ("spec.mode: Unsupported value", "spec.mode: Unsupported value"),
        ("https://busy.host/apis/x", "https://busy.host/apis/x"),
    ],
)
def test_what_people_named_says_nothing(said: str, seen: str) -> None:
    assert names(said) == seen
    assert len(seen) == len(said)


def test_a_word_after_a_colon_is_no_claim() -> None:
    said = "no spec of claim: read-only file system"
    assert mask(said) == said


@given(st.text() | st.text(alphabet="/ab-1.:[]() ", max_size=300))
def test_the_length_stays(said: str) -> None:
    assert len(names(layers(said))) == len(said)
