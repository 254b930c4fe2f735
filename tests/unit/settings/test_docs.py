import json
from pathlib import Path

import pytest

from agent.settings import docs
from agent.settings.leaves import leaves
from agent.settings.load import dump, load
from agent.settings.model import AgentConfig, Registration

ROOT = Path(__file__).parents[3]
AGAIN = "stale: run `python -m agent.settings.docs`"


def test_schema_file_is_current() -> None:
    assert (ROOT / docs.SCHEMA_FILE).read_text(encoding="utf-8") == docs.schema(), AGAIN


def test_example_file_is_current() -> None:
    assert (ROOT / docs.EXAMPLE_FILE).read_text(encoding="utf-8") == docs.example(), AGAIN


def test_table_of_the_page_is_current() -> None:
    page = (ROOT / docs.TABLE_FILE).read_text(encoding="utf-8")
    assert docs.with_table(page) == page, AGAIN


def test_the_example_is_the_defaults_with_a_comment_for_each_key() -> None:
    path = ROOT / docs.EXAMPLE_FILE
    assert load(str(path), env={}) == AgentConfig()
    lines = path.read_text(encoding="utf-8").splitlines()
    for leaf in leaves():
        found = [number for number, line in enumerate(lines) if f"{leaf.path[-1]}:" in line.split()]
        assert found, leaf.dotted
        assert any(lines[number - 1].lstrip().startswith("#") for number in found), leaf.dotted


def test_what_the_example_has_commented_out_is_good_too(tmp_path: Path) -> None:
    text = docs.example().replace("registration: overlay\n", "")
    lines = text.splitlines()
    start = lines.index("# registration:")
    end = lines.index("", start)
    lines[start:end] = [line.removeprefix("# ") for line in lines[start:end]]
    path = tmp_path / "a.yaml"
    path.write_text("\n".join(lines).replace("  perDriver: {}\n", "").replace("  # ", "  "))
    # Comments lost their mark with that; only the keys are wanted.
    keys = [line for line in path.read_text().splitlines() if not line.rstrip().endswith(".")]
    path.write_text("\n".join(line for line in keys if ":" in line and "; " not in line))
    config = load(str(path), env={})
    assert config.registration_settings == Registration()
    assert config.mode_of("gpu.example.com") == "enforce"


def test_the_schema_is_strict_and_knows_every_key() -> None:
    schema = json.loads(docs.schema())
    assert schema["required"] == ["apiVersion", "kind"]
    for leaf in leaves():
        node = schema
        for key in leaf.path:
            options = [node, *node.get("anyOf", [])]
            node = next(option for option in options if "properties" in option)
            assert node["additionalProperties"] is False
            node = node["properties"][key]
        assert node["description"] == leaf.description


def test_the_schema_agrees_with_a_dump() -> None:
    properties = json.loads(docs.schema())["properties"]
    assert list(properties) == [
        line.split(":")[0]
        for line in dump(AgentConfig()).splitlines()
        if line and line[0].isalpha()
    ]


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="unpack"):
        docs.with_table("no marks")
