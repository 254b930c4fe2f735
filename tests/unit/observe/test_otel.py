from __future__ import annotations

import asyncio
import hashlib
import socket
import uuid

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from agent.core.model import ClaimRef
from agent.errors import UserError
from agent.observe import methods, otel, tracing
from agent.observe.tracing import Tracing
from agent.settings.model import NodeIdentity
from agent.settings.model import Tracing as Settings
from tests.support.otlp import Receiver

PREPARE = methods.PREPARES[0]
DRIVER = "gpu.example.com"
SMALL = "0f6b0c5e-7f9f-4bb1-a8f2-1b7a7f1a2b3c"
LARGE = "3f6b0c5e-7f9f-4bb1-a8f2-1b7a7f1a2b3c"
IDENTITY = NodeIdentity(
    node_name="node-a", pod_name="agent-x", pod_namespace="dra-agent", pod_uid="pod-uid"
)


def claim(uid: str, name: str = "c") -> ClaimRef:
    return ClaimRef("default", uid, name)


def made(endpoint: str, env: dict[str, str] | None = None) -> Tracing:
    return tracing.make(Settings(endpoint=endpoint), IDENTITY, env or {})


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_TRACES_SAMPLER", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("uid", "expected"),
    [
        (SMALL, SMALL.replace("-", "")),
        (SMALL.upper(), SMALL.replace("-", "")),
        ("not-a-uuid", hashlib.blake2b(b"not-a-uuid", digest_size=16).hexdigest()),
    ],
)
def test_a_claim_uid_is_a_trace_id(uid: str, expected: str) -> None:
    assert format(otel.trace_id_of(uid), "032x") == expected


@pytest.mark.parametrize("uid", ["", str(uuid.UUID(int=0)), "\ud800", "x" * 10_000])
def test_any_uid_gives_a_valid_trace_id(uid: str) -> None:
    assert 0 < otel.trace_id_of(uid) < 2**128


async def test_a_call_is_a_true_root_named_by_its_smallest_claim() -> None:
    async with Receiver() as receiver:
        traces = made(receiver.endpoint)
        call = traces.call(PREPARE, DRIVER, [claim(LARGE, "b"), claim(SMALL, "a")], 1000.5)
        assert call.trace_id == SMALL.replace("-", "")
        call.attempt(1, [claim(SMALL)], "/plugins/dra.sock").end(0)
        call.end(0)
        await traces.close(10)
    by_kind = {int(received.span.kind): received for received in receiver.spans}
    server, client = by_kind[2], by_kind[3]
    assert server.span.parent_span_id == b""
    assert client.span.parent_span_id == server.span.span_id
    assert server.trace_id == client.trace_id == SMALL.replace("-", "")
    assert server.span.start_time_unix_nano == 1_000_500_000_000
    assert server.span.name == "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    assert server.schema_url == "https://opentelemetry.io/schemas/1.45.0"
    [link] = server.span.links
    assert link.trace_id.hex() == LARGE.replace("-", "")
    assert {a.key: a.value.string_value for a in link.attributes}["dra.claim.name"] == "b"


async def test_repeats_of_a_claim_share_the_trace_and_nothing_else() -> None:
    async with Receiver() as receiver:
        traces = made(receiver.endpoint)
        for _ in range(2):
            traces.call(PREPARE, DRIVER, [claim(SMALL)]).end(0)
        traces.call("/other.Service/Method", DRIVER, []).end(12)
        await traces.close(10)
    first, second, other = receiver.spans
    assert first.trace_id == second.trace_id
    assert first.span.span_id != second.span.span_id
    assert other.trace_id != first.trace_id
    assert other.span.name == "_OTHER"
    assert other.attributes["rpc.method_original"] == "other.Service/Method"


async def test_calls_at_the_same_time_keep_their_own_ids() -> None:
    async with Receiver() as receiver:
        traces = made(receiver.endpoint)

        async def one(uid: str) -> None:
            call = traces.call(PREPARE, DRIVER, [claim(uid)])
            await asyncio.sleep(0)
            call.attempt(1, [claim(uid)], "/s").end(0)
            await asyncio.sleep(0)
            call.end(0)

        uids = [str(uuid.uuid4()) for _ in range(20)]
        await asyncio.gather(*map(one, uids))
        await traces.close(10)
    assert sorted(r.trace_id for r in receiver.spans) == sorted(
        uid.replace("-", "") for uid in uids for _ in range(2)
    )


async def test_who_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=c1,k8s.node.name=mine")
    async with Receiver() as receiver:
        traces = made(receiver.endpoint, {"CONTAINER_NAME": "agent"})
        traces.call(PREPARE, DRIVER, [claim(SMALL)]).end(0)
        await traces.close(10)
    resource = receiver.spans[0].resource
    assert resource["service.name"] == "dra-node-agent"
    assert resource["service.instance.id"] == "dra-agent.agent-x.agent"
    assert resource["k8s.pod.uid"] == "pod-uid"
    assert resource["k8s.cluster.name"] == "c1"
    assert resource["k8s.node.name"] == "mine"  # the user's word wins
    assert "k8s.daemonset.name" not in resource


def test_the_users_service_name_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "other")
    assert otel.resource(IDENTITY, {}).attributes["service.name"] == "other"


async def test_a_sampler_that_drops_all_leaves_no_trace_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    traces = made("http://127.0.0.1:9")
    call = traces.call(PREPARE, DRIVER, [claim(SMALL)])
    assert call.trace_id == ""
    call.attempt(1, [], "/s").end(None, error_type="gone")
    call.end(0)
    await traces.close(5)


def test_a_ratio_holds_though_ids_are_uuids() -> None:
    def kept(ratio: float) -> float:
        sampler = otel._Spread(TraceIdRatioBased(ratio))
        ids = [otel.trace_id_of(str(uuid.UUID(int=n * 2**64 + n, version=4))) for n in range(2000)]
        found = [sampler.should_sample(None, n, "x").decision is not Decision.DROP for n in ids]
        return sum(found) / len(ids)

    assert kept(0.0) == 0
    assert 0.20 < kept(0.25) < 0.30
    assert 0.70 < kept(0.75) < 0.80
    assert kept(1.0) == 1


async def test_close_ends_in_time_though_the_collector_never_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        traces = made(f"http://127.0.0.1:{silent.getsockname()[1]}")
        traces.call(PREPARE, DRIVER, [claim(SMALL)]).end(0)
        async with asyncio.timeout(5):
            await traces.close(0.2)
    assert "spans left unsent after 0.2 s" in caplog.text


async def test_a_call_for_hundreds_of_claims_names_some() -> None:
    async with Receiver() as receiver:
        traces = made(receiver.endpoint)
        traces.call(PREPARE, DRIVER, [claim(str(uuid.uuid4())) for _ in range(500)]).end(0)
        await traces.close(10)
    [got] = receiver.spans
    assert len(got.span.links) == otel.MANY - 1
    assert got.attributes["dra.claim.count"] == 500


@pytest.mark.parametrize("word", ["abc", "100"])
async def test_a_strange_queue_size_is_no_traceback(
    word: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", word)
    traces = made("http://127.0.0.1:1", {"OTEL_BSP_MAX_QUEUE_SIZE": word})
    await traces.close(5)
    assert not [record for record in caplog.records if record.exc_info]


def test_what_the_sdk_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "abc")
    with pytest.raises(UserError, match=r"^tracing: an OTEL_\* variable cannot be used: "):
        made("http://127.0.0.1:1")
