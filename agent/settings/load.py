"""The config, from everywhere it can come from: defaults < file < environment < flags.

All problems are collected before any is raised, each with the place it came from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import msgspec
import yaml
from msgspec import inspect

from agent import names
from agent.core.text import quote
from agent.errors import UserError
from agent.settings import checks, document, tree
from agent.settings.leaves import Leaf, leaves, written
from agent.settings.model import AgentConfig, Retry

FLAGS = {
    "mode": "--mode",
    "registration": "--registration",
    "http.listen": "--http-listen",
    "report.kubeconfig": "--kubeconfig",
    "log.level": "--log-level",
    "log.format": "--log-format",
}
"""Keys that have a flag."""

# Kubernetes sets these for each Service of the namespace (enableServiceLinks): a Service named
# `dra-agent` must not make the agent refuse its environment.
_SERVICE_LINK = re.compile(r".*(?:_SERVICE_HOST|_SERVICE_PORT(?:_\w+)?|_PORT(?:_[0-9]+_[A-Z_]+)?)")


class _Sources:
    """The raw tree, where each part of it came from, and the problems found so far."""

    def __init__(self, path: str | None) -> None:
        self.tree: dict[str, object] = {}
        self.problems: list[tuple[str, str]] = []
        self._file = path
        self._origins: dict[str, str] = {}

    def say(self, path: str, problem: str) -> None:
        """Note a problem, with the file, variable or flag that brought the value."""
        origin = self._origins.get(re.sub(r"\[.*", "", path))
        where = origin or ": ".join(part for part in (self._file, path) if part)
        self.problems.append((path, f"{where}: {problem}" if where else problem))

    def say_new(self, path: str, problem: str) -> None:
        """Note a problem, unless that value is known to be wrong already."""
        if all(path != known for known, _ in self.problems):
            self.say(path, problem)

    def put(self, leaf: Leaf, value: object, origin: str) -> None:
        """Lay one value over what was there."""
        path = leaf.path
        node = self.tree
        for key in path[:-1]:
            inner = node.get(key)
            if isinstance(inner, str) and key == "registration":
                inner = {"kind": inner}  # the word form, now with a period beside it
            if not isinstance(inner, dict):
                inner = {}
            node[key] = inner
            node = inner
        there = node.get(path[-1])
        if path == ("registration",) and isinstance(there, dict):
            there["kind"] = value
            path = (*path, "kind")
        else:
            node[path[-1]] = value
        self._origins[".".join(path)] = origin


def load(
    path: str | None, *, env: Mapping[str, str], flags: Mapping[str, str] | None = None
) -> AgentConfig:
    """Read the effective config; UserError with all problems, sorted by path.

    `env` may hold foreign variables; `flags` is keyed by dotted path, such as `http.listen`.
    """
    config, problems = collect(path, env=env, flags=flags)
    if problems:
        raise UserError(*problems)
    return config


def collect(
    path: str | None, *, env: Mapping[str, str], flags: Mapping[str, str] | None = None
) -> tuple[AgentConfig, list[str]]:
    """As `load`, but return the problems beside what could be read: so all else can be checked."""
    sources = _Sources(path)
    if path is not None:
        _read_file(path, sources)
    _read_env(env, sources)
    by_path = {leaf.dotted: leaf for leaf in leaves()}
    for key, value in (flags or {}).items():
        sources.put(by_path[key], _typed(by_path[key], value), FLAGS[key])
    config = tree.build(AgentConfig, sources.tree, "", sources.say)
    config = _inherit(config, sources.tree)
    checks.check(config, sources.say_new)
    return config, list(dict.fromkeys(line for _, line in sorted(sources.problems)))


def origin(
    key: str, path: str | None, *, env: Mapping[str, str], flags: Mapping[str, str] | None = None
) -> str:
    """Say where the value of a key comes from, as problems do: flag, variable, or file and key."""
    if key in (flags or {}):
        return FLAGS[key]
    variable = next(leaf.variable for leaf in leaves() if leaf.dotted == key)
    if variable in env:
        return f"environment variable {variable}"
    return f"{path}: {key}" if path else key


def dump(config: AgentConfig) -> str:
    """Write the whole effective config as YAML that `load` reads back. It holds no secrets."""
    return str(yaml.safe_dump(written(config), sort_keys=False, allow_unicode=True))


def read_text(path: str) -> str:
    """Read a file the user named; UserError in one line when that fails."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read(document.MAX_SIZE + 1)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL, or what is not Unicode text
        raise UserError(f"{quote(path, 300)}: cannot be a path: {error}") from error


def shipped(name: str) -> str:
    """Text of a file that ships with the agent; in a source tree it is in config/."""
    installed = resources.files("agent") / "data" / name
    if installed.is_file():
        return installed.read_text(encoding="utf-8")
    return (Path(__file__).parents[2] / "config" / name).read_text(encoding="utf-8")


def _read_file(path: str, sources: _Sources) -> None:
    try:
        text = read_text(path)
    except UserError as error:
        sources.problems.extend(("", line) for line in error.problems)
        return
    value, problems = document.read(text)
    for where, problem in problems:
        sources.say(where, problem)
    if value is None and problems:
        return
    if not isinstance(value, dict):
        found = "nothing" if value is None else tree.show(value)
        sources.say("", f"expected a mapping that begins with `apiVersion`, got {found}")
        return
    sources.tree = value
    for key, expected in (("apiVersion", names.CONFIG_API_VERSION), ("kind", names.CONFIG_KIND)):
        if key not in value:
            sources.say(key, f"missing; expected `{expected}`")


def _read_env(env: Mapping[str, str], sources: _Sources) -> None:
    by_name = {leaf.variable: leaf for leaf in leaves() if leaf.variable}
    for name in sorted(name for name in env if name.startswith(names.ENV_PREFIX)):
        leaf = by_name.get(name)
        if leaf is not None:
            sources.put(leaf, _typed(leaf, env[name]), f"environment variable {name}")
        elif not _SERVICE_LINK.fullmatch(name):
            hint = tree.near(name, list(by_name), prefix=names.ENV_PREFIX)
            line = f"environment variable {name}: sets nothing{hint}"
            sources.problems.append((name, line))


def _typed(leaf: Leaf, value: str) -> object:
    """Read a word from outside YAML as its key's type would be written; as it is if it cannot."""
    match leaf.type:
        case inspect.BoolType():
            return {"true": True, "false": False}.get(value.lower(), value)
        case inspect.IntType():
            return int(value) if re.fullmatch("-?[0-9]{1,12}", value) else value
        case inspect.FloatType():
            return float(value) if re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]+)?", value) else value
        case inspect.ListType():
            return [word.strip() for word in value.split(",") if word.strip()]
    return value


def _inherit(config: AgentConfig, raw: Mapping[str, object]) -> AgentConfig:
    """Give each driver's `retry` the top level's values for the keys it does not set itself."""
    drivers = raw.get("drivers")
    given = drivers.get("perDriver") if isinstance(drivers, dict) else None
    if not isinstance(given, dict):
        return config
    special = {}
    for name, settings in config.drivers.per_driver.items():
        keys = given[name].get("retry") if isinstance(given[name], dict) else None
        retry = settings.retry
        if retry is not None and isinstance(keys, dict):
            pairs = zip(Retry.__struct_fields__, Retry.__struct_encode_fields__, strict=True)
            own = {field: getattr(retry, field) for field, key in pairs if key in keys}
            retry = msgspec.structs.replace(config.retry, **own)
        special[name] = msgspec.structs.replace(settings, retry=retry)
    return msgspec.structs.replace(
        config, drivers=msgspec.structs.replace(config.drivers, per_driver=special)
    )
