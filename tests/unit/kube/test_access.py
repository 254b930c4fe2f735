from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from agent.kube import access


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


def test_a_token_in_the_kubeconfig_overrides_its_file(tmp_path: Path) -> None:
    file = tmp_path / "config"
    text = (
        "current-context: c\n"
        "contexts: [{name: c, context: {user: u}}]\n"
        "users: [{name: u, user: {tokenFile: t%s}}]\n"
    )
    file.write_text(text % "")
    assert access._token_file(file) == tmp_path / "t"
    file.write_text(text % ", token: x")
    assert access._token_file(file) is None
