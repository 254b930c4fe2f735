"""Keeps what calls said about claims until the pod is gone or long started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.core.history import History, Key, merge, told
from agent.core.model import CallFact, ClaimRef, DeviceState

LIMIT = 4096
"""(driver, claim) pairs; a node has a few hundred at most."""


class Book:
    """Histories by (driver, claim UID), found by claim name too."""

    def __init__(self) -> None:
        self._histories: dict[Key, History] = {}
        self._refs: dict[Key, ClaimRef] = {}
        self._by_name: dict[tuple[str, str], set[Key]] = {}

    def __len__(self) -> int:
        return len(self._histories)

    @property
    def histories(self) -> Mapping[Key, History]:
        """All histories."""
        return self._histories

    def add(self, fact: CallFact) -> None:
        """Add what a prepare call said of each claim."""
        for outcome in fact.outcomes:
            key = (fact.driver, outcome.claim.uid)
            # Taken out and put in again: the dict's order is then that of the latest fact.
            old = self._histories.pop(key, None)
            self._histories[key] = merge(old, outcome, fact)
            self._refs[key] = outcome.claim
            self._by_name.setdefault((outcome.claim.namespace, outcome.claim.name), set()).add(key)
        while len(self._histories) > LIMIT:
            self._drop(self._least())

    def of_names(self, namespace: str, claims: Iterable[str]) -> list[tuple[Key, History]]:
        """Return the histories of claims of those names."""
        return [
            (key, self._histories[key])
            for name in claims
            for key in sorted(self._by_name.get((namespace, name), ()))
        ]

    def troubled(self, namespace: str, claims: Iterable[str]) -> bool:
        """Tell whether any of these claims failed since its last told recovery."""
        return any(history.troubled for _, history in self.of_names(namespace, claims))

    def settle(self, keys: Iterable[Key]) -> None:
        """Forget trouble that is over and was written."""
        for key in keys:
            history = self._histories.get(key)
            if history is not None and history.state is DeviceState.PREPARED:
                self._histories[key] = told(history)

    def drop(self, driver: str, uid: str) -> None:
        """Forget one driver's part of a claim: it was unprepared."""
        self._drop((driver, uid))

    def drop_names(self, namespace: str, claims: Iterable[str]) -> None:
        """Forget claims: their pod is gone, or runs."""
        for key, _ in self.of_names(namespace, claims):
            self._drop(key)

    def _least(self) -> Key:
        """The oldest that is prepared, else the oldest."""
        prepared = (k for k, h in self._histories.items() if h.state is DeviceState.PREPARED)
        return next(prepared, next(iter(self._histories)))

    def _drop(self, key: Key) -> None:
        ref = self._refs.pop(key, None)
        self._histories.pop(key, None)
        if ref is None:
            return
        keys = self._by_name.get((ref.namespace, ref.name), set())
        keys.discard(key)
        if not keys:
            self._by_name.pop((ref.namespace, ref.name), None)
