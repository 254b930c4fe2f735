"""Patterns that are compiled when they are first needed: most nodes see no failure for days."""

from __future__ import annotations

import re


class Late:
    """A regular expression as re.compile takes it; it costs memory from its first use on."""

    __slots__ = ("_flags", "_regex", "pattern")

    def __init__(self, pattern: str, flags: int = 0) -> None:
        """`flags`: those of the module re."""
        self.pattern = pattern
        self._flags = flags
        self._regex: re.Pattern[str] | None = None

    @property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern. Raises re.error at the first use of one that is none."""
        if self._regex is None:
            self._regex = re.compile(self.pattern, self._flags)
        return self._regex
