from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.errors import UserError
from agent.kube import client, errors
from agent.kube.client import Kube
from tests.support.kube_api import NODE, Fault, KubeApi, make_claim, make_pod, make_slice


@pytest.fixture
async def api() -> AsyncIterator[KubeApi]:
    server = KubeApi()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def kube(api: KubeApi, tmp_path: Path) -> AsyncIterator[Kube]:
    made = await Kube.open(kubeconfig=api.kubeconfig(tmp_path, token="t0"))
    assert made is not None
    yield made
    await made.close()


async def test_reads(api: KubeApi, kube: Kube) -> None:
    await api.put_pod(make_pod("p", "c"))
    api.put_claim(make_claim("c", "p", "gpu-0"))
    api.put_node("v1.37.2")
    assert (await kube.get_pod("ns", "p"))["metadata"]["uid"] == "uid-p"
    assert (await kube.get_claim("ns", "c"))["metadata"]["uid"] == "uid-c"
    node = await kube.get_node(NODE)
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.37.2"
    assert {s.token for s in api.seen} == {"Bearer t0"}
    with pytest.raises(errors.NotFound):
        await kube.get_pod("ns", "none")


async def test_slices_of_one_driver_and_node(api: KubeApi, kube: Kube) -> None:
    api.slices += [make_slice("a.example.com", {"name": "x"}), make_slice("b.example.com")]
    (found,) = await kube.list_slices("a.example.com", NODE)
    assert found["spec"]["devices"] == [{"name": "x"}]
    seen = api.seen[-1]
    assert seen.path == "/apis/resource.k8s.io/v1/resourceslices"
    assert seen.query == {
        "fieldSelector": f"spec.driver=a.example.com,spec.nodeName={NODE}", "limit": "100",
    }  # fmt: skip


async def test_taint_rules_of_the_cluster(api: KubeApi, kube: Kube) -> None:
    with pytest.raises(errors.NotFound):
        await kube.list_taint_rules()
    api.taint_rules = [{"spec": {}}]
    assert await kube.list_taint_rules() == [{"spec": {}}]
    assert api.seen[-1].path == "/apis/resource.k8s.io/v1/devicetaintrules"
    assert api.seen[-1].query == {"limit": "100"}


async def test_events_about_one_object(api: KubeApi, kube: Kube) -> None:
    api.old_events += [{"involvedObject": {"uid": uid}, "message": uid} for uid in "ab"]
    assert [e["message"] for e in await kube.list_events("ns", "b", "Some")] == ["b"]
    assert api.seen[-1].query == {"fieldSelector": "involvedObject.uid=b,reason=Some"}


async def test_status_patch_merges_conditions_by_type(api: KubeApi, kube: Kube) -> None:
    await api.put_pod(make_pod("p", "c"))
    ours = {"type": "dra-agent.io/X", "status": "False"}
    await kube.patch_pod_status("ns", "p", {"status": {"conditions": [ours]}})
    kinds = [c["type"] for c in api.pod("p")["status"]["conditions"]]
    assert kinds == ["PodScheduled", "dra-agent.io/X"]


async def test_event_goes_to_the_events_group(api: KubeApi, kube: Kube) -> None:
    await kube.create_event("ns", {"metadata": {"name": "e"}})
    assert api.seen[-1].path == "/apis/events.k8s.io/v1/namespaces/ns/events"
    with pytest.raises(errors.Conflict):
        await kube.create_event("ns", {"metadata": {"name": "e"}})


async def test_lists_page_by_page_of_this_node(
    api: KubeApi, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAGE", 2)
    for i in range(5):
        await api.put_pod(make_pod(f"p{i}", "c"))
    pods, version = await kube.list_pods(NODE)
    assert len(pods) == 5
    assert int(version) > 100
    assert {s.query["fieldSelector"] for s in api.seen} == {f"spec.nodeName={NODE}"}
    assert len(api.seen) == 3


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (409, errors.Conflict),
        (403, errors.Denied),
        (422, errors.Invalid),
        (500, errors.Unavailable),
    ],
)
async def test_errors_are_ours(
    api: KubeApi, kube: Kube, code: int, kind: type[errors.KubeError]
) -> None:
    api.faults.append(Fault("GET", "/pods/p", code))
    with pytest.raises(kind) as caught:
        await kube.get_pod("ns", "p")
    assert "told so by the test" in str(caught.value)


async def test_refused_and_hanging_are_unavailable(
    api: KubeApi, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "REQUEST_TIMEOUT", 0.3)
    api.faults.append(Fault("GET", "/pods/p", 0))
    with pytest.raises(errors.Unavailable):
        await kube.get_pod("ns", "p")
    await api.stop()
    with pytest.raises(errors.Unavailable):
        await kube.get_pod("ns", "p")


async def test_each_request_is_measured(api: KubeApi, tmp_path: Path) -> None:
    told: list[tuple[str, str, int]] = []
    kube = await Kube.open(
        kubeconfig=api.kubeconfig(tmp_path),
        on_request=lambda verb, resource, code, seconds: told.append((verb, resource, code)),
    )
    assert kube is not None
    with pytest.raises(errors.NotFound):
        await kube.get_claim("ns", "c")
    await kube.list_pods(NODE)
    await api.stop()
    with pytest.raises(errors.Unavailable):
        await kube.get_node(NODE)
    await kube.close()
    assert told == [("GET", "resourceclaims", 404), ("LIST", "pods", 200), ("GET", "nodes", 0)]


@pytest.mark.parametrize("how", ["kubeconfig", "service account"])
async def test_rewritten_token_file_is_used(
    api: KubeApi, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    if how == "kubeconfig":
        kube = await Kube.open(kubeconfig=api.kubeconfig(tmp_path, tokenFile="token"))
    else:
        ca = Path(__file__).parents[2] / "support" / "ca.crt"
        (tmp_path / "ca.crt").write_text(ca.read_text())
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
        kube = await Kube.open(environ=environ, service_account=tmp_path)
        assert kube is not None
        assert kube._client.configuration.host == f"https://127.0.0.1:{api.port}"
        kube._client.configuration.host = api.url  # the test's server speaks no TLS
    assert kube is not None
    api.put_node()
    await kube.get_node(NODE)
    token.write_text("second\n")
    await kube.get_node(NODE)
    token.unlink()  # the moment between two versions
    await kube.get_node(NODE)
    await kube.close()
    assert [s.token for s in api.seen] == ["Bearer first", "Bearer second", "Bearer second"]


async def test_no_access_configured_is_none(tmp_path: Path) -> None:
    assert await Kube.open(environ={}, service_account=tmp_path) is None
    environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}
    assert await Kube.open(environ=environ, service_account=tmp_path) is None


async def test_bad_kubeconfig_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        await Kube.open(kubeconfig=str(tmp_path / "none"))
    bad = tmp_path / "bad"
    for text in ("{", "[]", "current-context: x", json.dumps({"current-context": "c"})):
        bad.write_text(text)
        with pytest.raises(UserError, match=f"^report.kubeconfig: {bad}: "):
            await Kube.open(kubeconfig=str(bad))


async def test_certificates_that_are_none_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    file = tmp_path / "kc"
    file.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://a', certificate-authority: pem}}]\n"
        "users: [{name: u, user: {}}]\n"
    )
    with pytest.raises(UserError, match=r"^KUBECONFIG: certificates cannot be used: ") as caught:
        await Kube.open(kubeconfig=str(file), option="KUBECONFIG")
    assert "\n" not in str(caught.value)


async def test_watch_yields_events_and_ends_with_the_server(api: KubeApi, kube: Kube) -> None:
    _, version = await kube.list_pods(NODE)
    await api.put_pod(make_pod("p", "c"))
    events = kube.watch_pods(NODE, version, 60)
    event = await anext(events)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "p")
    waiting = asyncio.ensure_future(anext(events))
    await api.stop()
    with pytest.raises((errors.Unavailable, StopAsyncIteration)):
        await waiting
    await events.aclose()  # type: ignore[attr-defined]


async def test_old_version_is_expired(api: KubeApi, kube: Kube) -> None:
    _, version = await kube.list_pods(NODE)
    api.forget_history()
    with pytest.raises(errors.Expired):
        await anext(kube.watch_pods(NODE, version, 60))


async def test_silent_watch_is_given_up(
    api: KubeApi, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WATCH_SLACK", 0.2)
    _, version = await kube.list_pods(NODE)
    with pytest.raises(errors.Unavailable):
        await anext(kube.watch_pods(NODE, version, 0.1))
