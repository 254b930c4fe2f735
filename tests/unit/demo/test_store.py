from __future__ import annotations

import asyncio

import pytest

from agent.demo.store import ApiError, Object, Store

KEY = ("pods", "n", "p")


def make() -> tuple[Store, Object]:
    store = Store()
    meta = {"name": "p", "namespace": "n", "annotations": {"a": "1"}}
    return store, store.create("pods", {"metadata": meta, "spec": {"x": 1}, "status": {}})


def test_what_is_given_out_is_a_copy() -> None:
    store, pod = make()
    pod["spec"]["x"] = 2
    store.list("pods")[0]["spec"]["x"] = 3
    assert store.get(*KEY)["spec"] == {"x": 1}


def test_a_second_create_is_409_and_a_missing_object_404() -> None:
    store, pod = make()
    with pytest.raises(ApiError) as error:
        store.create("pods", pod)
    assert error.value.code == 409
    with pytest.raises(ApiError) as error:
        store.get("pods", "n", "other")
    assert error.value.code == 404


def test_patch_status_takes_status_and_annotations_only() -> None:
    store, _ = make()
    patch = {
        "metadata": {"annotations": {"b": "2"}, "name": "other"},
        "spec": {"x": 9},
        "status": {"phase": "Failed"},
    }
    pod = store.patch_status(KEY, patch)
    assert pod["metadata"]["annotations"] == {"a": "1", "b": "2"}
    assert pod["metadata"]["name"] == "p"
    assert (pod["spec"], pod["status"]) == ({"x": 1}, {"phase": "Failed"})


@pytest.mark.parametrize(
    ("meta", "code"), [({"uid": "wrong"}, 422), ({"resourceVersion": "1"}, 409)]
)
def test_preconditions(meta: Object, code: int) -> None:
    store, _ = make()
    with pytest.raises(ApiError) as error:
        store.patch_status(KEY, {"metadata": meta, "status": {"phase": "Failed"}})
    assert error.value.code == code
    assert store.get(*KEY)["status"] == {}


def test_met_preconditions_pass_and_an_empty_patch_is_no_change() -> None:
    store, pod = make()
    meta = {key: pod["metadata"][key] for key in ("uid", "resourceVersion")}
    changed = store.patch_status(KEY, {"metadata": meta, "status": {"phase": "Failed"}})
    assert changed["metadata"]["resourceVersion"] != pod["metadata"]["resourceVersion"]
    again = store.patch_status(KEY, {"status": {"phase": "Failed"}})
    assert again["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


async def test_a_watch_gives_what_came_before_and_what_comes() -> None:
    store, _ = make()
    store.create("nodes", {"metadata": {"name": "other kind"}})
    seen = []

    async def follow() -> None:
        async for change in store.watch("pods", 0):
            seen.append(change.kind)
            if change.kind == "DELETED":
                return

    watcher = asyncio.create_task(follow())
    await asyncio.sleep(0)
    store.delete(KEY)
    store.remove(KEY)
    await asyncio.wait_for(watcher, 2)
    assert seen == ["ADDED", "MODIFIED", "DELETED"]
    assert store.list("pods") == []


async def test_a_watch_leaves_out_what_is_not_newer() -> None:
    store, _ = make()
    since = store.version
    store.delete(KEY, grace=5)
    change = await anext(store.watch("pods", since))
    assert change.object["metadata"]["deletionGracePeriodSeconds"] == 5
