from pathlib import Path

import pytest

from agent.cli import main

HEAD = "apiVersion: dra-agent.io/v1alpha1\nkind: FailureRules\nversion: 1\n"
MORE = "culprit: node, hint: Look., source: us"


def write(tmp_path: Path, body: str) -> str:
    path = tmp_path / "r.yaml"
    path.write_text(HEAD + body)
    return str(path)


def test_a_good_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        tmp_path,
        f"rules: [{{id: a, text: 'zebra', verdict: transient, {MORE}, examples: ['a zebra']}}]",
    )
    assert main(["rules", "lint", path]) == 0
    assert capsys.readouterr().out == f"{path}: 1 rules\n"
    assert main(["rules", "test", path]) == 0
    assert "1 rules, 1 examples, 0 failed; 120 texts" in capsys.readouterr().out


def test_what_is_missing_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "rules: [{id: a, text: 'zebra', verdict: transient}]")
    assert main(["rules", "lint", path]) == 0
    said = capsys.readouterr().out
    assert "warning: rule `a` has no hint" in said
    assert "warning: rule `a` has no example" in said


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("rules: [{id: a, text: '(a|ab){1,9}', verdict: transient}]", "several ways"),
        ("rules: [{id: a, text: '.*', verdict: transient}]", "unbounded"),
        ("rules: [{id: a, text: x, verdict: !!bool maybe}]", "not a valid value"),
        ('rules: [{id: a, text: "\\ud800", verdict: transient}]', "not a valid value"),
        (
            "rules: [{id: a, text: 'of cards\\.example', verdict: transient}]\n"
            "packs: [{name: p, drivers: [cards.example], rules: [{id: b, verdict: transient}]}]",
            "rule `a` is for all drivers but names `cards.example`: use a pack",
        ),
        (
            "rules: [{id: a, text: 'of dra\\.net', verdict: transient}]",
            "rule `a` is for all drivers but names `dra.net`: use a pack",
        ),
        (
            "rules: [{id: a, text: 'of cards\\.example', verdict: transient}]\n"
            "packs: [{name: p, drivers: [cards.example], repeat: {withinCall: once, reason: x}}]",
            "rule `a` is for all drivers but names `cards.example`: use a pack",
        ),
    ],
)
def test_refused_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, words: str
) -> None:
    assert main(["rules", "lint", write(tmp_path, body)]) == 2
    assert words in capsys.readouterr().err


def test_all_problems_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = (
        "rules:\n- {id: a, text: x, verdict: soon}\n- {id: b, text: '.*', verdict: transient}\n"
        "- {id: b, text: x, verdict: transient, zebra: 1}\n- nonsense\n"
        "- {id: 5, text: x, verdict: transient}\n"
        "packs:\n- {name: p, drivers: 7}\n- {name: q, drivers: ['*']}\n"
    )
    path = write(tmp_path, body)
    assert main(["rules", "lint", path]) == 2
    said = capsys.readouterr().err
    for words in (
        "rules[0].verdict: expected one of",
        "rules[1].text: ",
        "rules[2].id: `b` is given twice",
        "rules[2].zebra: unknown key",
        "rules[3]: expected a mapping",
        "rules[4].id: expected text in quotes",
        "packs[0].drivers: expected a list, got 7",
        "packs[1].drivers: name the drivers",
    ):
        assert words in said
    assert said.count(f"{path}: ") == 8, "and nothing that only follows from another"


def test_a_pack_that_makes_repeats_safe_changes_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "c.jsonl"
    texts.write_text('{"id": "z", "driver": "dra.net", "text": "zebra"}\n')
    path = write(
        tmp_path,
        "packs: [{name: p, drivers: [dra.net], repeat: {withinCall: freely, reason: x}}]",
    )
    assert main(["rules", "test", path, "--corpus", str(texts)]) == 0
    said = capsys.readouterr().out
    assert "(default), at most 1 attempt per call -> ambiguous, unknown (default), repeats" in said
    assert "1 changed" in said


def test_a_line_of_the_corpus_that_cannot_be_read_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "c.jsonl"
    texts.write_text('{"id": "z", "text": "zebra"}\nnonsense\n')
    path = write(tmp_path, f"rules: [{{id: a, text: 'quagga', verdict: transient, {MORE}}}]")
    assert main(["rules", "test", path, "--corpus", str(texts)]) == 1
    assert f"{texts}:2: not JSON" in capsys.readouterr().err


def test_an_example_that_another_rule_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path,
        f"rules:\n- {{id: a, text: 'zeb', verdict: transient, {MORE}, examples: ['zeb']}}\n"
        f"- {{id: b, text: 'zebra', verdict: transient, {MORE}, examples: ['zebra']}}\n",
    )
    assert main(["rules", "test", path]) == 1
    assert "FAILED: rule `b`: its example is decided by `a`" in capsys.readouterr().out


def test_what_a_new_rule_changes_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = f"rules: [{{id: a, text: 'no space left', verdict: transient, {MORE}}}]"
    assert main(["rules", "test", write(tmp_path, rule)]) == 0
    said = capsys.readouterr().out
    assert "CHANGED: f047: ambiguous, node (node-disk-full) -> transient, node (a)" in said
    assert "FALSE PERMANENT" not in said
    bad = rule.replace("transient", "permanent")
    assert main(["rules", "test", write(tmp_path, bad)]) == 1
    assert "permanent, node (a)  FALSE PERMANENT" in capsys.readouterr().out


def test_another_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "c.jsonl"
    texts.write_text('{"id": "z", "text": "zebra"}\n')
    path = write(tmp_path, f"rules: [{{id: a, text: 'zebra', verdict: permanent, {MORE}}}]")
    assert main(["rules", "test", path, "--corpus", str(texts)]) == 0
    said = capsys.readouterr().out
    assert "CHANGED: z: ambiguous, unknown (default) -> permanent, node (a)" in said
    assert "1 texts of the" in said
    assert main(["rules", "test", path, "--corpus", str(tmp_path / "none")]) == 2


def test_the_builtin_file_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(Path(__file__).parents[3] / "config" / "rules.yaml")
    assert main(["rules", "lint", path]) == 0
    assert "warning" not in capsys.readouterr().out
    assert main(["rules", "test", path]) == 0
    assert "0 failed; 120 texts of the built-in corpus, 0 changed" in capsys.readouterr().out
