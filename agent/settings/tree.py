"""Plain values -> the config types, collecting every problem with its path.

msgspec stops at its first error; a person wants all of them at once. So the types are walked
here, and msgspec only describes them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec import inspect

from agent.core import text
from agent.settings import durations

T = TypeVar("T", bound=msgspec.Struct)

_HUGE = 1 << 62

Say = Callable[[str, str], None]
"""Takes the path of a value and what is wrong with it."""


def plain(described: inspect.Type) -> inspect.Type:
    """Strip the annotations from a described type."""
    while isinstance(described, inspect.Metadata):
        described = described.type
    return described


def build(cls: type[T], value: object, path: str, say: Say) -> T:
    """Make `cls` from a mapping; a value with a problem is said and left at its default."""
    described = inspect.type_info(cls)
    assert isinstance(described, inspect.StructType)
    built = _struct(described, value, path, say)
    assert isinstance(built, cls)
    return built


def near(word: str, words: list[str], *, prefix: str = "") -> str:
    """Return a suggestion such as `; did you mean `x`?`, or nothing.

    `prefix` is what all of them begin with; it makes no word similar to another.
    """
    by_lower = {candidate.removeprefix(prefix).lower(): candidate for candidate in words}
    squeezed = word.removeprefix(prefix).lower().replace("_", "").replace("-", "")
    found = difflib.get_close_matches(squeezed, list(by_lower), n=1, cutoff=0.7)
    return f"; did you mean `{by_lower[found[0]]}`?" if found else ""


def show(value: object) -> str:
    """Show a wrong value, short and safe."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return text.quote(value)
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and abs(value) > _HUGE:
        return "a huge number"
    return text.clean(str(value), 80)


class _Heard:
    """Passes problems on and counts them."""

    def __init__(self, say: Say) -> None:
        self.problems = 0
        self._say = say

    def __call__(self, path: str, problem: str) -> None:
        self.problems += 1
        self._say(path, problem)


def _struct(described: inspect.StructType, value: object, path: str, say: Say) -> object:
    if not isinstance(value, Mapping):
        say(path, f"expected a mapping with keys, got {show(value)}")
        return described.cls()
    fields = {field.encode_name: field for field in described.fields}
    for key in value:
        if key not in fields:
            say(_join(path, key), f"unknown key{near(str(key), list(fields))}")
    found = {}
    for key, field in fields.items():
        if key not in value:
            continue
        heard = _Heard(say)
        item = _value(field.type, value[key], _join(path, key), heard)
        # What holds other keys keeps those that are good, so that later checks see them.
        if isinstance(item, msgspec.Struct) or _holds(field.type) or not heard.problems:
            found[field.name] = item
    return described.cls(**found)


def _holds(described: inspect.Type) -> bool:
    """Tell whether values of this type are made of others that have keys."""
    match plain(described):
        case inspect.ListType(item_type=item):
            return isinstance(plain(item), inspect.StructType)
        case inspect.DictType():
            return True
    return False


def _value(described: inspect.Type, value: object, path: str, say: Say) -> object:
    described = plain(described)
    match described:
        case inspect.StructType():
            return _struct(described, value, path, say)
        case inspect.UnionType():
            return _union(described, value, path, say)
        case inspect.ListType():
            if not isinstance(value, list):
                say(path, f"expected a list, got {show(value)}")
                return []
            return [
                _value(described.item_type, item, f"{path}[{index}]", say)
                for index, item in enumerate(value)
            ]
        case inspect.DictType():
            if not isinstance(value, Mapping):
                say(path, f"expected a mapping with keys, got {show(value)}")
                return {}
            return {
                key: _value(described.value_type, item, f"{path}[{key}]", say)
                for key, item in value.items()
            }
    return _leaf(described, value, path, say)


def _union(described: inspect.UnionType, value: object, path: str, say: Say) -> object:
    options = [plain(option) for option in described.types]
    if value is None and any(isinstance(option, inspect.NoneType) for option in options):
        return None
    structs = [option for option in options if isinstance(option, inspect.StructType)]
    others = [
        option
        for option in options
        if not isinstance(option, inspect.StructType | inspect.NoneType)
    ]
    if structs and (isinstance(value, Mapping) or not others):
        return _struct(structs[0], value, path, say)
    return _leaf(others[0], value, path, say)


def _leaf(described: inspect.Type, value: object, path: str, say: Say) -> object:
    problem = ""
    match described:
        case inspect.CustomType(cls=durations.Duration):
            try:
                return durations.parse(value)
            except ValueError as error:
                problem = str(error)
        case inspect.LiteralType(values=values):
            if isinstance(value, str) and value in values:
                return value
            words = [str(option) for option in values]
            problem = f"expected {_either(words)}"
            if isinstance(value, str) and (hint := near(value, words)):
                say(path, f"{problem}, got {show(value)}{hint}")
                return value
        case inspect.BoolType():
            if isinstance(value, bool):
                return value
            problem = "expected true or false"
        case inspect.StrType():
            if isinstance(value, str):
                return value
            problem = "expected text"
            if isinstance(value, int | float) and not isinstance(value, bool):
                problem = "expected text in quotes (YAML reads 1.30 as the number 1.3)"
        case inspect.IntType() | inspect.FloatType():
            return _number(described, value, path, say)
        case _:  # a new kind of type in the model must be taught here
            raise TypeError(f"{path}: no check for {described!r}")
    say(path, f"{problem}, got {show(value)}")
    return value


def _number(
    described: inspect.IntType | inspect.FloatType, value: object, path: str, say: Say
) -> object:
    whole = isinstance(described, inspect.IntType)
    low, high = described.ge, described.le
    kinds = int if whole else int | float
    if isinstance(value, kinds) and not isinstance(value, bool) and abs(value) <= _HUGE:
        inside = (low is None or value >= low) and (high is None or value <= high)
        if inside:
            return value if whole else float(value)
    limits = f" of {low} or more" if low is not None else ""
    if low is not None and high is not None:
        limits = f" from {low} to {high}"
    say(path, f"expected a {'whole ' if whole else ''}number{limits}, got {show(value)}")
    return low if low is not None else 0


def _either(words: list[str]) -> str:
    if len(words) == 1:
        return f"`{words[0]}`"
    return "one of " + ", ".join(f"`{word}`" for word in words)


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
