"""How each part of a store asks its tables: by name, and so that `Answers` records whether the database answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fencehold.own_tables import OwnTables, Reader, Row, Statement
from submission_manager.answers import Answers


class Asking:
    """Base of a store's parts: runs their statements by name, and tells `Answers` whether the database answered."""

    def __init__(self, source: OwnTables | Reader, answers: Answers) -> None:
        self._source = source
        self._of = answers.of

    async def _rows(self, name: str, params: dict[str, Any], limit_s: float, *, is_promise: bool = False) -> list[Row]:
        return await self._of(self._source.run(Statement(name, params, is_promise=is_promise), limit_s))


def fixed(limit_s: float) -> Callable[[], float]:
    """Fix a time limit that starts now, and return a function that returns the seconds left of it."""
    ends_s = time.monotonic() + limit_s
    return lambda: ends_s - time.monotonic()
