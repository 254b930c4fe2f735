"""What is generated from the config types: JSON Schema, example file, table of the docs.

`python -m agent.settings.docs` rewrites the files; tests fail while one of them is stale.
"""

from __future__ import annotations

import inspect as python_inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import inspect

from agent import names
from agent.settings import durations, tree
from agent.settings.leaves import describe, leaves, written
from agent.settings.model import AgentConfig

SCHEMA_FILE = "config/agent.schema.json"
EXAMPLE_FILE = "config/agent.example.yaml"
TABLE_FILE = "docs/configuration.md"
BEGIN, END = "<!-- generated: keys -->\n", "<!-- generated: end -->"

_DURATION = {"anyOf": [{"type": "string", "pattern": f"^(?:0|{durations.PATTERN})$"}, {"const": 0}]}

_PER_DRIVER = """\
# perDriver:
#   gpu.example.com:
#     mode: enforce
#     retry:
#       maxDelay: 2s
"""


def schema() -> str:
    """Return the JSON Schema (2020-12) of the config file, as text."""
    described = inspect.type_info(AgentConfig)
    body = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{names.PRODUCT} {names.CONFIG_KIND} ({names.CONFIG_API_VERSION})",
        **schema_of(described, AgentConfig()),
        "required": ["apiVersion", "kind"],
    }
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def table() -> str:
    """Return the Markdown table of all keys."""
    rows = ["| Key | Default | Environment variable | Meaning |", "|---|---|---|---|"]
    for leaf in leaves():
        default = json.dumps(leaf.default, ensure_ascii=False).strip('"') or '""'
        variable = f"`{leaf.variable}`" if leaf.variable else ""
        kind = _words(leaf.type)
        meaning = leaf.description + (f" {kind}" if kind else "")
        meaning = re.sub(r"<([a-z ]+)>", r"&lt;\1&gt;", meaning).replace("|", "\\|")
        rows.append(f"| `{leaf.dotted}` | `{default}` | {variable} | {meaning} |")
    return "\n".join(rows) + "\n"


def example() -> str:
    """Return a config file with every key, its default and a comment."""
    head = (
        f"# {names.PRODUCT}: every key with its default. Only apiVersion and kind must be given.\n"
        "# Durations: 250ms, 3s, 2m, 1h. Check a file with: dra-agent check-config FILE\n"
    )
    described = inspect.type_info(AgentConfig)
    assert isinstance(described, inspect.StructType)
    return head + "".join(_example(described, AgentConfig()))


def write(root: Path) -> None:
    """Rewrite the generated files of a source tree."""
    (root / SCHEMA_FILE).write_text(schema(), encoding="utf-8")
    (root / EXAMPLE_FILE).write_text(example(), encoding="utf-8")
    page = root / TABLE_FILE
    page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")


def with_table(page: str) -> str:
    """Put the current table between the marks of a page."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END)[1]}"


def schema_of(described: inspect.Type, default: object) -> dict[str, object]:
    """JSON Schema of one type; `default` is its value where nothing is given."""
    body: dict[str, object] = {}
    if text := describe(described):
        body["description"] = text
    match tree.plain(described):
        case inspect.StructType() as struct:
            body |= {"type": "object", "additionalProperties": False}
            instance = default if isinstance(default, struct.cls) else struct.cls()
            body["properties"] = {
                field.encode_name: schema_of(field.type, getattr(instance, field.name))
                for field in struct.fields
            }
            return body
        case inspect.UnionType(types=types):
            options = [option for option in types if not isinstance(option, inspect.NoneType)]
            if len(options) == 1:
                return body | schema_of(options[0], default)
            body["anyOf"] = [schema_of(option, None) for option in options]
        case inspect.ListType(item_type=item):
            body |= {"type": "array", "items": schema_of(item, None)}
        case inspect.DictType(value_type=value):
            body |= {"type": "object", "additionalProperties": schema_of(value, None)}
        case inspect.LiteralType(values=values):
            body["enum"] = list(values)
        case inspect.CustomType(cls=durations.Duration):
            body |= _DURATION
        case inspect.BoolType():
            body["type"] = "boolean"
        case inspect.StrType():
            body["type"] = "string"
        case inspect.IntType() | inspect.FloatType() as number:
            body["type"] = "integer" if isinstance(number, inspect.IntType) else "number"
            limits = {"minimum": number.ge, "maximum": number.le}
            body |= {key: limit for key, limit in limits.items() if limit is not None}
    if default is not None:
        body["default"] = written(default)
    return body


def _words(described: inspect.Type) -> str:
    """Say which words a key takes."""
    options = described.types if isinstance(described, inspect.UnionType) else (described,)
    for option in options:
        literal = tree.plain(option)
        if isinstance(literal, inspect.LiteralType) and len(literal.values) > 1:
            return "One of " + ", ".join(f"`{value}`" for value in literal.values) + "."
    return ""


def _example(described: inspect.StructType, instance: msgspec.Struct) -> Iterator[str]:
    for field in described.fields:
        value = getattr(instance, field.name)
        inner = tree.plain(field.type)
        text = describe(field.type)
        if isinstance(inner, inspect.StructType):
            text = python_inspect.getdoc(inner.cls) or ""
            yield f"\n{_comment(text)}{field.encode_name}:\n"
            yield textwrap.indent("".join(_example(inner, value)).lstrip("\n"), "  ")
            continue
        yield f"{_comment(text)}{field.encode_name}: {_flow(written(value))}\n"
        if isinstance(inner, inspect.DictType):
            yield _PER_DRIVER
        for option in inner.types if isinstance(inner, inspect.UnionType) else ():
            struct = tree.plain(option)
            if isinstance(struct, inspect.StructType):
                long = "".join(_example(struct, struct.cls()))
                block = f"{field.encode_name}:\n{textwrap.indent(long, '  ')}"
                yield textwrap.indent(block, "# ", lambda line: bool(line.strip())).replace(
                    "\n\n", "\n"
                )


def _comment(text: str) -> str:
    wrapped = textwrap.wrap(text, 90, break_on_hyphens=False)
    return "".join(f"# {line}\n" for line in wrapped)


def _flow(value: object) -> str:
    if isinstance(value, str) and value and re.fullmatch(r"[A-Za-z0-9./:-]+", value):
        return value
    return json.dumps(value)


if __name__ == "__main__":
    write(Path.cwd())
