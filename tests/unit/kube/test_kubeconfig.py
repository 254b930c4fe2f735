from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from agent.errors import UserError
from agent.kube import kubeconfig, lazy
from agent.kube.access import from_kubeconfig

GOOD = """\
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {token: t}}]
"""
PEM = "-----BEGIN CERTIFICATE-----"
CONTEXT = GOOD.splitlines()[1]
CLUSTER = GOOD.splitlines()[2]
USER = GOOD.splitlines()[3]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kc"


def said(path: object) -> list[str]:
    found = kubeconfig.problems(str(path), "--kubeconfig")
    assert all(line.startswith("--kubeconfig: ") for line in found)
    return [line.removeprefix("--kubeconfig: ").replace(f"{path}: ", "", 1) for line in found]


def test_a_good_one(file: Path) -> None:
    file.write_text(GOOD)
    assert said(file) == []
    found = kubeconfig.read(str(file), "--kubeconfig")
    assert found.document["users"] == [{"name": "u", "user": {"token": "t"}}]
    assert found.token_file is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("garbage", 'not a kubeconfig: expected a mapping with `current-context`, got "garbage"'),
        ("", "not a kubeconfig: expected a mapping with `current-context`, got nothing"),
        ("- a", "not a kubeconfig: expected a mapping with `current-context`, got a list"),
        ("{", "not valid YAML: line 1, column 2: while parsing a flow node: expected the node"),
        ("a: 2020-99-99", "not valid YAML: a value that cannot be read"),
        ("a: " + "[" * 9999, "nested too deep"),
        ("x: 1", "current-context: expected the name of a context"),
        ("current-context: 3", "current-context: expected the name of a context, got 3"),
        ("current-context: c", 'current-context: there is no context "c"'),
        ("current-context: c\ncontexts: 4", "contexts: expected a list, got 4"),
        (GOOD.replace(CONTEXT, "contexts: [{name: c}]"), 'context "c": expected a mapping with'),
        (GOOD.replace("cluster: k, ", ""), 'context "c": it names no cluster'),
        (GOOD.replace(", user: u", ""), 'context "c": it names no user'),
        (GOOD.replace(CLUSTER, ""), 'context "c": there is no cluster "k"'),
        (GOOD.replace(USER, ""), 'context "c": there is no user "u"'),
        (GOOD.replace(", user: {token: t}", ""), 'user "u": expected a mapping, got nothing'),
        (
            GOOD.replace('server: "https://192.0.2.1:6443"', ""),
            'cluster "k": server: expected a URL such as https://192.0.2.1:6443, got nothing',
        ),
        (GOOD.replace("https:", "tcp:"), 'cluster "k": server: expected a URL such as'),
        (GOOD.replace("{server", "{proxy-url: 1, server"), 'cluster "k": proxy-url: expected text'),
        (
            GOOD.replace("{server", '{insecure-skip-tls-verify: "false", server'),
            'cluster "k": insecure-skip-tls-verify: expected true or false',
        ),
        (GOOD.replace("token: t", "token: 5"), 'user "u": token: expected text'),
        (GOOD.replace("token: t", 'token: "t\\n"'), 'user "u": token: must be one line'),
        (GOOD.replace("token: t", "exec: x"), 'user "u": exec: expected a mapping'),
        (GOOD.replace("token: t", "tokenFile: none"), 'user "u": tokenFile: no such file: /'),
        (GOOD.replace("token: t", "client-key: none"), 'user "u": client-key: no such file: /'),
        (
            GOOD.replace("token: t", "client-key-data: QUJDR"),
            'user "u": client-key-data: not base64',
        ),
        (GOOD.replace("token: t", "client-key-data: QUJD"), 'user "u": client-key-data: not PEM'),
        (
            GOOD.replace("{server", "{certificate-authority: kc, server"),
            'cluster "k": certificate-authority: not PEM',
        ),
        (
            GOOD.replace("{server", "{certificate-authority: '.', server"),
            'cluster "k": certificate-authority: cannot be read: /',
        ),
    ],
)
def test_what_is_wrong(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    found = said(file)
    assert len(found) == 1
    assert found[0].startswith(words)


def test_all_of_it_at_once(file: Path) -> None:
    file.write_text(
        "current-context: c\n" + CONTEXT + "\nclusters: [{name: k, cluster: {server: 3}}]\n"
        "users: [{name: u, user: {token: 5, client-key: 6}}]\n"
    )
    assert said(file) == [
        'cluster "k": server: expected a URL such as https://192.0.2.1:6443, got 3',
        'user "u": token: expected text',
        'user "u": client-key: expected text',
    ]
    with pytest.raises(UserError) as caught:
        kubeconfig.read(str(file), "--kubeconfig")
    assert len(caught.value.problems) == 3


def test_what_is_no_file(tmp_path: Path, file: Path) -> None:
    assert said(tmp_path) == ["is a directory; name the file in it"]
    assert said(file) == [f"no such file: {file}; correct the path or leave it out"]
    assert said("/none/a:/none/b")[0].startswith("no such file: /none/a:/none/b; ")
    file.write_bytes(b"\xff")
    assert said(file) == ["not UTF-8 text"]


def test_a_secret_is_not_shown(file: Path) -> None:
    for user in ("token: [hush]", "password: [hush]", "client-key-data: hush", "token: [hush"):
        file.write_text(GOOD.replace("token: t", user))
        (line,) = said(file)
        assert "hush" not in line


def test_several_files_are_laid_together_as_kubectl_does(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "token").write_text("first")
    one, two = tmp_path / "kc", other / "kc"
    one.write_text("current-context: c\nusers: [{name: u, user: {tokenFile: token}}]\n")
    two.write_text(
        f"current-context: d\n{CONTEXT}\n{USER}\n"
        + CLUSTER.replace("{server", "{certificate-authority: ca, server")
    )
    (other / "ca").write_text(PEM)
    found = kubeconfig.read(f"/none:{one}:{two}", "KUBECONFIG")
    assert found.token_file == tmp_path / "token"
    cluster = found.document["clusters"][0]["cluster"]
    assert cluster["certificate-authority"] == str(other / "ca")


def test_a_token_overrides_its_file_and_data_a_named_file(file: Path) -> None:
    data = base64.b64encode(PEM.encode()).decode()
    user = f"token: t, tokenFile: none, client-key: none, client-key-data: {data}"
    file.write_text(GOOD.replace("token: t", user))
    assert kubeconfig.read(str(file), "--kubeconfig").token_file is None


def test_the_library_takes_it(file: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    file.write_text(GOOD.replace("token: t", "tokenFile: token"))
    made = asyncio.run(from_kubeconfig(lazy.load(), str(file)))
    assert made.host == "https://192.0.2.1:6443"
    assert made.api_key == {"BearerToken": "Bearer secret"}
