"""What is generated from the rule file types: config/rules.schema.json.

`python -m agent.settings.ruledocs` rewrites it; a test fails while it is stale.
"""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import inspect

from agent import names
from agent.core.patterns import MAX_PATTERN
from agent.core.rules import CODES
from agent.settings.docs import schema_of
from agent.settings.rulemodel import DoubtEntry, RuleEntry, RulesFile

SCHEMA_FILE = "config/rules.schema.json"


def schema() -> str:
    """Return the JSON Schema (2020-12) of a rule file, as text."""
    body = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{names.PRODUCT} {names.RULES_KIND} ({names.CONFIG_API_VERSION})",
        **schema_of(inspect.type_info(RulesFile), RulesFile()),
        "required": ["apiVersion", "kind", "version"],
    }
    _sharpen(body)
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def write(root: Path) -> None:
    """Rewrite the file of a source tree."""
    (root / SCHEMA_FILE).write_text(schema(), encoding="utf-8")


def _sharpen(node: object) -> None:
    """Add what the types alone do not say: needed keys, forms, closed sets."""
    if isinstance(node, list):
        for item in node:
            _sharpen(item)
    if not isinstance(node, dict):
        return
    keys = node.get("properties", {})
    if set(keys) == set(RuleEntry.__struct_encode_fields__):
        node["required"] = ["id", "verdict"]
        keys["id"]["pattern"] = "^[a-z0-9]+(-[a-z0-9]+)*$"
        keys["id"]["maxLength"] = 63
        keys["code"]["items"]["enum"] = list(CODES)
        for name in ("text", "also", "unless"):
            keys[name]["maxLength"] = MAX_PATTERN
    elif set(keys) == set(DoubtEntry.__struct_encode_fields__):
        node["required"] = ["text", "reason"]
        keys["text"]["maxLength"] = MAX_PATTERN
    elif "drivers" in keys and "rules" in keys:
        node["required"] = ["name", "drivers"]
        keys["drivers"]["minItems"] = 1
    elif "withinCall" in keys:
        node["required"] = ["withinCall", "reason"]
    for value in node.values():
        _sharpen(value)


if __name__ == "__main__":
    write(Path.cwd())
