"""All keys of the config, flat: for the environment, the table in the docs and the example."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from msgspec import inspect

from agent import names
from agent.settings import durations, tree
from agent.settings.model import AgentConfig


@dataclass(frozen=True, slots=True)
class Leaf:
    """One key that holds a value: its path, type, default and what it is for."""

    path: tuple[str, ...]
    type: inspect.Type
    default: object  # as written in YAML
    description: str

    @property
    def dotted(self) -> str:
        """The path as it is written in problems and docs."""
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        """Environment variable that sets it; empty where none does."""
        if self.path[0] in ("apiVersion", "kind") or isinstance(self.type, inspect.DictType):
            return ""
        words = [re.sub(r"([A-Z])", r"_\1", word).upper() for word in self.path]
        return names.ENV_PREFIX + "_".join(words)


def leaves() -> list[Leaf]:
    """Return every key of `AgentConfig` in the order of the model."""
    described = inspect.type_info(AgentConfig)
    assert isinstance(described, inspect.StructType)
    return list(_walk(described, AgentConfig(), ()))


def written(value: object) -> object:
    """Turn a config value into what stands for it in YAML: mappings, lists, words, numbers."""
    if isinstance(value, msgspec.Struct):
        pairs = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        found = {key: getattr(value, name) for name, key in pairs}
        return {key: written(item) for key, item in found.items() if item is not None}
    if isinstance(value, durations.Duration):
        return durations.render(value)
    if isinstance(value, dict):
        return {str(key): written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [written(item) for item in value]
    return value


def _walk(
    described: inspect.StructType, instance: msgspec.Struct, prefix: tuple[str, ...]
) -> Iterator[Leaf]:
    for field in described.fields:
        path = (*prefix, field.encode_name)
        value = getattr(instance, field.name)
        inner = tree.plain(field.type)
        if isinstance(inner, inspect.StructType):
            yield from _walk(inner, value, path)
            continue
        yield Leaf(path, inner, written(value), describe(field.type))
        for option in inner.types if isinstance(inner, inspect.UnionType) else ():
            struct = tree.plain(option)
            if isinstance(struct, inspect.StructType):
                yield from _walk(struct, struct.cls(), path)


def describe(described: inspect.Type) -> str:
    """Return the description that the model gives a type."""
    if isinstance(described, inspect.Metadata) and described.extra_json_schema:
        return str(described.extra_json_schema.get("description", ""))
    return ""
