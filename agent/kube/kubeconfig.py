"""Kubeconfig files, read as kubectl reads them, with everything that is wrong said at once.

Several files may be joined by colons: what comes first wins, and a file that is missing is passed
over where another is there. Relative paths start at the file they stand in. The library takes
whatever a file holds and fails far from the cause, so it gets only what was checked here. Values
of a user may be secrets and are never shown.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.core import text
from agent.errors import UserError
from agent.settings import document
from agent.settings.checks import is_url
from agent.settings.tree import show

Body = Mapping[str, Any]

_KINDS = ("contexts", "clusters", "users")
_PEMS = ("certificate-authority", "client-certificate", "client-key")
_WORDS = {
    "cluster": (
        "certificate-authority",
        "certificate-authority-data",
        "tls-server-name",
        "proxy-url",
    ),
    "user": (
        "token",
        "tokenFile",
        "username",
        "password",
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
    ),
}
_SECTIONS = ("exec", "auth-provider")
_INSECURE = "insecure-skip-tls-verify"  # the library takes any text for true
_MAX_BYTES = 1 << 20  # of a certificate or key file


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """What the library is given: the current context alone, its paths absolute."""

    document: dict[str, Any]
    token_file: Path | None


@dataclass(frozen=True, slots=True)
class _Entry:
    file: Path
    body: object


def read(path: str, option: str) -> Kubeconfig:
    """Read the files; UserError with all problems. `option` is what the user set."""
    reader = _Reader(path, option)
    found = reader.read()
    if reader.problems:
        raise UserError(*reader.problems)
    return found


def problems(path: str, option: str) -> list[str]:
    """What is wrong with the files, a line for each."""
    reader = _Reader(path, option)
    reader.read()
    return reader.problems


class _Reader:
    def __init__(self, path: str, option: str) -> None:
        self.problems: list[str] = []
        self._path = path
        self._option = option
        self._current: object = None
        self._entries: dict[tuple[str, str], _Entry] = {}

    def read(self) -> Kubeconfig:
        written = [Path(os.path.expanduser(each)) for each in self._path.split(os.pathsep) if each]
        there = [file for file in written if self._load(file)]
        if not there:
            shown = text.clean(self._path, 300)
            self._say(f"no such file: {shown}; correct the path or leave it out")
        if self.problems:
            return Kubeconfig({}, None)
        if not isinstance(self._current, str):
            got = "" if self._current is None else f", got {show(self._current)}"
            self._at(self._path, f"current-context: expected the name of a context{got}")
            return Kubeconfig({}, None)
        return self._context(self._current)

    def _load(self, file: Path) -> bool:
        """Take what is in a file; False where there is none."""
        try:
            with open(file, encoding="utf-8") as stream:
                said = stream.read(document.MAX_SIZE + 1)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except IsADirectoryError:
            self._at(file, "is a directory; name the file in it")
            return True
        except UnicodeDecodeError:
            self._at(file, "not UTF-8 text")
            return True
        except (OSError, ValueError) as error:
            self._at(file, f"cannot be read: {getattr(error, 'strerror', None) or error}")
            return True
        value, problem = document.foreign(said)
        if problem:
            self._at(file, problem)
        elif isinstance(value, dict):
            self._merge(file, value)
        else:
            got = "nothing" if value is None else show(value)
            wanted = "expected a mapping with `current-context`"
            self._at(file, f"not a kubeconfig: {wanted}, got {got}")
        return True

    def _merge(self, file: Path, value: Body) -> None:
        self._current = self._current or value.get("current-context") or None
        for kind in _KINDS:
            listed = value.get(kind) or []
            if not isinstance(listed, list):
                self._at(file, f"{kind}: expected a list, got {show(listed)}")
                continue
            for each in listed:
                if isinstance(each, dict) and isinstance(each.get("name"), str):
                    body = each.get(kind.removesuffix("s"))
                    self._entries.setdefault((kind, each["name"]), _Entry(file, body))

    def _context(self, name: str) -> Kubeconfig:
        entry = self._entries.get(("contexts", name))
        if entry is None:
            self._at(self._path, f"current-context: there is no context {show(name)}")
            return Kubeconfig({}, None)
        if not isinstance(entry.body, dict):
            wanted = "expected a mapping with `cluster` and `user`"
            self._at(entry.file, f"context {show(name)}: {wanted}")
            return Kubeconfig({}, None)
        cluster = self._part("cluster", name, entry)
        user = self._part("user", name, entry)
        tokens = user.get("tokenFile") if not user.get("token") else None
        made = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        return Kubeconfig(made, Path(tokens) if tokens and not self.problems else None)

    def _part(self, kind: str, context: str, entry: _Entry) -> dict[str, Any]:
        """The context's cluster or user as the library shall see it."""
        assert isinstance(entry.body, dict)
        name = entry.body.get(kind)
        found = self._entries.get((f"{kind}s", name)) if isinstance(name, str) else None
        if found is None:
            lacks = f"there is no {kind} {show(name)}" if name else f"it names no {kind}"
            self._at(entry.file, f"context {show(context)}: {lacks}")
            return {}
        at = f"{kind} {show(name)}"
        if not isinstance(found.body, dict):
            self._at(found.file, f"{at}: expected a mapping, got {show(found.body)}")
            return {}
        body = {key: value for key, value in found.body.items() if value not in (None, "")}
        before = len(self.problems)
        if kind == "cluster":
            self._server(body.get("server"), f"{at}: server", found.file)
        for key in _WORDS[kind]:
            if key in body and not isinstance(body[key], str):
                self._at(found.file, f"{at}: {key}: expected text")
        if not isinstance(body.get(_INSECURE, False), bool):
            self._at(found.file, f"{at}: {_INSECURE}: expected true or false")
        for key in _SECTIONS:
            if key in body and not isinstance(body[key], dict):
                self._at(found.file, f"{at}: {key}: expected a mapping")
        if len(self.problems) == before:
            self._contents(body, at, found.file)
        return body

    def _server(self, server: object, at: str, file: Path) -> None:
        if not (isinstance(server, str) and is_url(server)):
            wanted = "expected a URL such as https://192.0.2.1:6443"
            self._at(file, f"{at}: {wanted}, got {show(server)}")

    def _contents(self, body: dict[str, Any], at: str, file: Path) -> None:
        """Look at tokens and at what is in files; their paths become absolute."""
        if any(ord(sign) < 32 for sign in body.get("token", "")):
            self._at(file, f"{at}: token: must be one line")
        if "tokenFile" in body and "token" not in body:
            body["tokenFile"] = _beside(file, body["tokenFile"])
            self._bytes(body["tokenFile"], f"{at}: tokenFile", file)
        for key in _PEMS:
            raw = None
            if data := body.get(f"{key}-data"):
                try:
                    raw = base64.b64decode(data)
                except (binascii.Error, ValueError):
                    self._at(file, f"{at}: {key}-data: not base64")
            elif key in body:
                body[key] = _beside(file, body[key])
                raw = self._bytes(body[key], f"{at}: {key}", file)
            if raw is not None and b"-----BEGIN " not in raw:
                self._at(file, f"{at}: {key}{'-data' if data else ''}: not PEM")

    def _bytes(self, named: str, at: str, file: Path) -> bytes | None:
        try:
            with open(named, "rb") as stream:
                return stream.read(_MAX_BYTES)
        except FileNotFoundError:
            self._at(file, f"{at}: no such file: {named}")
        except (OSError, ValueError) as error:
            why = (getattr(error, "strerror", None) or str(error)).lower()
            self._at(file, f"{at}: cannot be read: {named}: {why}")
        return None

    def _at(self, file: Path | str, problem: str) -> None:
        self._say(f"{file}: {problem}")

    def _say(self, problem: str) -> None:
        self.problems.append(f"{self._option}: {text.clean(problem, 500)}")


def _beside(file: Path, named: str) -> str:
    return os.path.abspath(file.parent / named)
