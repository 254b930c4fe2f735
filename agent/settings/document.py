"""YAML text -> plain values, stricter than PyYAML: nothing twice, nothing huge, nothing live.

PyYAML keeps the last of two equal keys and builds any depth; both hide mistakes. Aliases may be
used, but the document they expand to is bounded, so ten lines cannot become a billion values.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from agent.core.text import clean, quote

MAX_SIZE = 1 << 20
"""Characters of a file."""
MAX_VALUES = 50_000
"""Values of a document with its aliases expanded."""
MAX_DEPTH = 32

_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # absent where PyYAML lacks libyaml
_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_NO_VALUE = (ValueError, ArithmeticError, LookupError, AttributeError, TypeError)
"""What PyYAML lets through, for `!!bool maybe`, `!!int ""` or `!!timestamp soon` for example."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNREADABLE = "not valid YAML: a value that cannot be read"


class _Bad(Exception):
    """The document cannot be read at all."""


def read(text: str, *, own: bool = False) -> tuple[object, list[tuple[str, str]]]:
    """Return the document and what is wrong with it, as pairs of path and problem.

    What is not YAML at all is None with one problem; an empty document is None without one.
    `own` is a file of ours: libyaml reads it, in a tenth of the time and with worse words for
    mistakes.
    """
    if len(text) > MAX_SIZE:
        return None, [("", f"larger than {MAX_SIZE} characters")]
    loader = None
    try:
        loader = (_FAST if own else yaml.SafeLoader)(text)
        node = loader.get_single_node()
        if node is None:
            return None, []
        builder = _Builder(loader)
        value = builder.build(node, "", 0)
    except _Bad as error:
        return None, [("", str(error))]
    except RecursionError:
        return None, [("", f"nested deeper than {MAX_DEPTH} levels")]
    except yaml.YAMLError as error:
        return None, [("", _sentence(error))]
    except (ValueError, ArithmeticError):  # the scanner's, for an escape or a directive
        return None, [("", _UNREADABLE)]
    finally:
        if loader is not None:
            loader.dispose()
    return value, builder.problems


def foreign(text: str) -> tuple[object, str]:
    """Read a file that is not ours as its own programs do, of doubled keys the last: the document,
    or None and one problem, which shows no value, for it may be a secret.
    """
    if len(text) > MAX_SIZE:
        return None, f"larger than {MAX_SIZE} characters"
    try:
        return yaml.safe_load(text), ""
    except yaml.YAMLError as error:
        return None, _sentence(error)
    except RecursionError:
        return None, "nested too deep"
    except _NO_VALUE:
        return None, _UNREADABLE


class _Builder:
    """Builds values from nodes, counting each visit, aliases included."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self.problems: list[tuple[str, str]] = []
        self._loader = loader
        self._count = 0

    def build(self, node: yaml.Node, path: str, depth: int) -> object:
        self._count += 1
        if self._count > MAX_VALUES:
            raise _Bad(f"more than {MAX_VALUES} values once aliases are expanded")
        if depth > MAX_DEPTH:
            raise _Bad(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, yaml.CollectionNode) and node.tag not in _TAGS:
            self._tag(node, path)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.build(item, f"{path}[{index}]", depth + 1)
                for index, item in enumerate(node.value)
            ]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._say(path, f"line {line}: a key must be a word")
                continue
            key = str(key_node.value)
            if _SURROGATE.search(key):
                self._say(path, f"line {line}: not a valid key: {quote(key)}")
                continue
            inner = f"{path}.{key}" if path else key
            if key in values:
                self._say(inner, f"line {line}: given twice")
                continue
            if key_node.tag == "tag:yaml.org,2002:merge":
                self._say(inner, f"line {line}: merge keys are not supported")
                continue
            before = len(self.problems)
            value = self.build(value_node, inner, depth + 1)
            if value is not None or len(self.problems) == before:
                values[key] = value  # else it is left out, or it would be told twice
        return values

    def _scalar(self, node: yaml.Node, path: str) -> object:
        line = f"line {node.start_mark.line + 1}"
        try:
            value = self._loader.construct_object(node)
        except _NO_VALUE:
            self._say(path, f"{line}: not a valid value: {quote(node.value)}")
            return None
        except yaml.constructor.ConstructorError:
            self._tag(node, path)
            return None
        if isinstance(value, list | dict | set):  # PyYAML's answer to `!!map x`
            self._tag(node, path)
            return None
        if isinstance(value, str) and _SURROGATE.search(value):
            # No file, log or message can take it.
            self._say(path, f"{line}: not a valid value: {quote(value)}")
            return None
        return value

    def _tag(self, node: yaml.Node, path: str) -> None:
        tag = clean(node.tag, 80)
        self._say(path, f"line {node.start_mark.line + 1}: tag {tag} is not supported")

    def _say(self, path: str, problem: str) -> None:
        self.problems.append((path, problem))


def _sentence(error: yaml.YAMLError) -> str:
    """Say PyYAML's many-line message in one line."""
    mark = getattr(error, "problem_mark", None)
    text = getattr(error, "problem", None) or str(error).splitlines()[0]
    context = getattr(error, "context", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return f"not valid YAML: {where}{context + ': ' if context else ''}{text}"
