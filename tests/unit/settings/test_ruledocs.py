import json
from pathlib import Path

from agent.settings import ruledocs

ROOT = Path(__file__).parents[3]


def test_the_schema_file_is_current() -> None:
    assert (ROOT / ruledocs.SCHEMA_FILE).read_text(encoding="utf-8") == ruledocs.schema()


def test_the_schema_says_what_the_reader_asks_for() -> None:
    body = json.loads(ruledocs.schema())
    rule = body["properties"]["rules"]["items"]
    assert rule["required"] == ["id", "verdict"]
    assert rule["additionalProperties"] is False
    assert "UNAVAILABLE" in rule["properties"]["code"]["items"]["enum"]
    pack = body["properties"]["packs"]["items"]
    assert pack["required"] == ["name", "drivers"]
    assert pack["properties"]["rules"]["items"]["required"] == ["id", "verdict"]
    assert body["required"] == ["apiVersion", "kind", "version"]


def test_writing_it(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    ruledocs.write(tmp_path)
    assert (tmp_path / ruledocs.SCHEMA_FILE).read_text(encoding="utf-8") == ruledocs.schema()
