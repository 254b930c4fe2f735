"""Real protobuf messages in, real protobuf messages out; garbage raises WireError only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import wire
from agent.core.model import ClaimRef
from agent.core.wire import WireError
from agent.pb import dra_v1_pb2, dra_v1beta1_pb2

VERSIONS: list[Any] = [dra_v1_pb2, dra_v1beta1_pb2]
# Field 99 as varint 7, field 98 as text: what a newer peer might add.
UNKNOWN = b"\x98\x06\x07" + b"\x92\x06\x03new"

texts = st.text(max_size=20)
uids = st.text(min_size=1, max_size=12)
garbage = st.binary(max_size=200)


@st.composite
def answers(draw: st.DrawFn) -> tuple[Any, Any]:
    pb = draw(st.sampled_from(VERSIONS))
    message = pb.NodePrepareResourcesResponse()
    for uid in draw(st.sets(uids, max_size=4)):
        one = message.claims[uid]
        one.error = draw(texts)
        one.permanent_error = draw(st.booleans())
        for name in draw(st.lists(texts, max_size=3)):
            one.devices.add(device_name=name, pool_name="pool", cdi_device_ids=["a", "b"])
    return pb, message


def request(pb: Any, *names: str) -> Any:
    message = pb.NodePrepareResourcesRequest()
    for name in names:
        message.claims.add(namespace="ns", uid=f"uid-{name}", name=name)
    return message


@pytest.mark.parametrize("pb", VERSIONS)
def test_claims_are_read_in_order(pb: Any) -> None:
    body = request(pb, "b", "a").SerializeToString()
    assert wire.parse_claims(body + UNKNOWN) == (
        ClaimRef("ns", "uid-b", "b"),
        ClaimRef("ns", "uid-a", "a"),
    )


@pytest.mark.parametrize("pb", VERSIONS)
def test_subset_keeps_the_bytes_of_what_it_keeps(pb: Any) -> None:
    odd = b"\x0a\x0b" + b"\x12\x05uid-x" + b"\xf8\x01\x01\x08"[:3] + b"\x00"
    body = request(pb, "a", "b").SerializeToString() + UNKNOWN
    assert wire.subset(body, {"uid-a", "uid-b"}) == body
    assert wire.subset(body, {"uid-b"}) == request(pb, "b").SerializeToString() + UNKNOWN
    assert wire.subset(body, set()) == UNKNOWN
    with pytest.raises(WireError):
        wire.subset(odd, {"uid-x"})


@given(answers())
def test_entries_are_what_protobuf_reads(case: tuple[Any, Any]) -> None:
    _, message = case
    found = wire.entries(message.SerializeToString())
    assert found.keys() == message.claims.keys()
    for uid, entry in found.items():
        expected = message.claims[uid]
        assert entry.raw == expected.SerializeToString(deterministic=True) or entry.raw
        assert entry.error == expected.error
        assert entry.permanent_error == (expected.permanent_error and expected.error != "")
        assert entry.devices == tuple(device.device_name for device in expected.devices)


@given(answers())
def test_taking_apart_and_putting_together_changes_nothing(case: tuple[Any, Any]) -> None:
    _, message = case
    body = message.SerializeToString() + UNKNOWN
    found = wire.entries(body)
    joined = wire.response([(uid, entry.raw) for uid, entry in found.items()], wire.rest(body))
    again = type(message).FromString(joined)
    assert again == type(message).FromString(body)
    assert wire.entries(joined) == found
    assert wire.rest(joined) == UNKNOWN


@given(answers(), texts, st.booleans())
def test_another_error_text_keeps_all_else(
    case: tuple[Any, Any], text: str, permanent: bool
) -> None:
    pb, message = case
    for one in message.claims.values():
        expected = pb.NodePrepareResourceResponse()
        expected.CopyFrom(one)
        expected.error = text
        expected.permanent_error = permanent or one.permanent_error
        changed = wire.with_error(one.SerializeToString() + UNKNOWN, text, permanent)
        assert UNKNOWN in changed
        read = pb.NodePrepareResourceResponse.FromString(changed)
        assert (read.error, list(read.devices)) == (text, list(expected.devices))
        assert read.permanent_error == expected.permanent_error


def test_a_new_error_needs_no_answer_of_the_driver() -> None:
    read = dra_v1_pb2.NodePrepareResourceResponse.FromString(wire.with_error(b"", "held", True))
    assert (read.error, read.permanent_error) == ("held", True)


def test_of_a_doubled_uid_the_last_wins_as_in_protobuf() -> None:
    first = wire.with_error(b"", "first", permanent=False)
    last = wire.with_error(b"", "last", permanent=False)
    body = wire.response([("u", first), ("v", b""), ("u", last)])
    assert wire.entries(body)["u"].error == "last"
    assert list(wire.entries(body)) == ["u", "v"]
    assert dra_v1_pb2.NodePrepareResourcesResponse.FromString(body).claims["u"].error == "last"


def test_entries_nobody_asked_for_are_seen() -> None:
    assert set(wire.entries(wire.response([("asked", b""), ("extra", b"")]))) == {"asked", "extra"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x08\x05", id="claims as varint"),
        pytest.param(b"\x0d\x01\x02\x03\x04", id="claims as fixed32"),
        pytest.param(b"\x93\x06\x08\x01\x9b\x06\x9c\x06\x94\x06", id="nested groups"),
    ],
)
def test_a_known_number_with_another_wire_type_is_unknown(body: bytes) -> None:
    assert wire.entries(body) == {}
    assert wire.rest(body) == body
    dra_v1_pb2.NodePrepareResourcesResponse.FromString(body)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x0a", id="no length"),
        pytest.param(b"\x0a\x05ab", id="cut short"),
        pytest.param(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fab", id="huge length"),
        pytest.param(b"\xff" * 11, id="endless varint"),
        pytest.param(b"\x02\x00", id="field number 0"),
        pytest.param(b"\x0f", id="wire type 7"),
        pytest.param(b"\x0c", id="end without a group"),
        pytest.param(b"\x0b\x14", id="another group ends"),
        pytest.param(b"\x0b" * 5000, id="groups without end"),
        pytest.param(b"\x0a\x02\x0a\x05", id="garbage in a claim"),
    ],
)
def test_garbage_is_a_wire_error(body: bytes) -> None:
    with pytest.raises(WireError):
        wire.entries(body)


@given(garbage)
def test_garbage_never_raises_anything_else(body: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [
        wire.parse_claims,
        wire.entries,
        wire.entry,
        wire.rest,
        wire.unprepare_errors,
        lambda data: wire.subset(data, {"a"}),
        lambda data: wire.with_error(data, "text", permanent=True),
    ]
    for reader in readers:
        try:
            reader(body)
        except WireError:
            continue


def test_text_that_is_not_utf8_is_read_with_replacement() -> None:
    body = wire.response([("u", b"\x12\x02\xff\xfe")])
    assert wire.entries(body)["u"].error == "\ufffd\ufffd"
    assert wire.entries(body)["u"].raw == b"\x12\x02\xff\xfe"


def test_permanent_error_means_nothing_without_an_error() -> None:
    assert wire.entry(b"\x18\x01").permanent_error is False


@pytest.mark.parametrize("pb", VERSIONS)
def test_errors_of_an_unprepare(pb: Any) -> None:
    message = pb.NodeUnprepareResourcesResponse()
    message.claims["bad"].error = "still in use"
    message.claims["good"].error = ""
    found = wire.unprepare_errors(message.SerializeToString() + UNKNOWN)
    assert found == {"bad": "still in use", "good": ""}
