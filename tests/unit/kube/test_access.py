from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.errors import UserError
from agent.kube import access
from tests.unit.kube.test_kubeconfig import GOOD


def test_in_cluster_needs_address_and_token(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert not access.in_cluster(environ, tmp_path)
    (tmp_path / "token").write_text("x")
    assert access.in_cluster(environ, tmp_path)
    assert not access.in_cluster({**environ, "KUBERNETES_SERVICE_HOST": ""}, tmp_path)


def test_token_file_keeps_the_old_token_while_there_is_none(tmp_path: Path) -> None:
    configuration = SimpleNamespace(api_key={})
    hook = access.TokenFile(tmp_path / "token")
    hook(configuration)
    assert configuration.api_key == {}
    (tmp_path / "token").write_text(" a \n")
    hook(configuration)
    assert configuration.api_key == {"BearerToken": "Bearer a"}
    (tmp_path / "token").write_text("")
    hook(configuration)
    assert configuration.api_key == {"BearerToken": "Bearer a"}


def test_ipv6_address_is_bracketed(tmp_path: Path) -> None:
    library = SimpleNamespace(configuration=lambda: SimpleNamespace(api_key={}))
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    made = access.from_service_account(library, environ, tmp_path)  # type: ignore[arg-type]
    assert made.host == "https://[fd00::1]:443"


def test_where_a_person_has_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert access.users_kubeconfig({"KUBECONFIG": "a:b"}) == ("a:b", "KUBECONFIG")
    with pytest.raises(UserError) as caught:
        access.users_kubeconfig({"KUBECONFIG": ""})
    assert caught.value.problems == (
        "no kubeconfig: give --kubeconfig, set KUBECONFIG, or make ~/.kube/config",
    )
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").touch()
    assert access.users_kubeconfig({}) == ("~/.kube/config", "kubeconfig")


async def test_whatever_the_library_raises_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "kc"
    file.write_text(GOOD)

    async def load(*_: object, **__: object) -> None:
        raise AssertionError

    library: Any = SimpleNamespace(configuration=SimpleNamespace, load_kube_config_from_dict=load)
    with pytest.raises(UserError) as caught:
        await access.from_kubeconfig(library, str(file), "--kubeconfig")
    assert caught.value.problems == (f"--kubeconfig: {file} cannot be used: AssertionError",)
