from __future__ import annotations

import pytest

from agent.core.model import DeviceState
from agent.report import book as module
from agent.report.book import Book
from tests.support.kube_records import GPU, NET, fact, outcome

PREPARED = DeviceState.PREPARED


def test_found_by_claim_name() -> None:
    book = Book()
    book.add(fact(outcome("c")))
    book.add(fact(outcome("c", PREPARED), driver=NET))
    book.add(fact(outcome("d", PREPARED)))
    assert [key for key, _ in book.of_names("ns", ["c"])] == [(GPU, "uid-c"), (NET, "uid-c")]
    assert book.of_names("other", ["c"]) == []
    assert book.troubled("ns", ["c"])
    assert not book.troubled("ns", ["d", "none"])


def test_settle_forgets_only_what_is_over() -> None:
    book = Book()
    book.add(fact(outcome("c", PREPARED, attempts=3)))
    book.add(fact(outcome("d")))
    book.settle([(GPU, "uid-c"), (GPU, "uid-d"), (GPU, "none")])
    assert not book.troubled("ns", ["c"])
    assert book.troubled("ns", ["d"])
    assert book.histories[GPU, "uid-d"].verdict is not None


def test_dropped_by_name_and_by_driver() -> None:
    book = Book()
    book.add(fact(outcome("c"), outcome("d")))
    book.add(fact(outcome("c"), driver=NET))
    book.drop(GPU, "uid-c")
    book.drop(GPU, "never")
    assert [key for key, _ in book.of_names("ns", ["c"])] == [(NET, "uid-c")]
    book.drop_names("ns", ["c", "d"])
    assert len(book) == 0
    assert book._by_name == {}
    assert book._refs == {}


def test_bounded_prepared_ones_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 3)
    book = Book()
    book.add(fact(outcome("bad")))
    for name in ("a", "b", "c", "d"):
        book.add(fact(outcome(name, PREPARED)))
    assert {uid for _, uid in book.histories} == {"uid-bad", "uid-c", "uid-d"}
    for name in ("x", "y", "z"):
        book.add(fact(outcome(name)))
    assert {uid for _, uid in book.histories} == {"uid-x", "uid-y", "uid-z"}
