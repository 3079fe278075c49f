"""The fields of a term for programs without an event loop. None of them does I/O; only a guard's `check` does."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from fencehold.model.errors import LeaseLost
from fencehold.runtime.election import term as _term


class TermFields:
    """The fields of the async term."""

    def __init__(self, term: _term.Term) -> None:
        self._term = term

    if not TYPE_CHECKING:  # hidden from type checkers, which would accept every misspelt name

        def __getattr__(self, name: str) -> Any:
            """Any other attribute, taken from the async term."""
            return getattr(self._term, name)

    @property
    def name(self) -> str:
        return self._term.name

    @property
    def holder_id(self) -> str:
        return self._term.holder_id

    @property
    def epoch(self) -> int:
        """The fencing token: higher than that of every earlier term of this lease."""
        return self._term.epoch

    @property
    def expires_at(self) -> dt.datetime:
        """When the lease expires, by the store's clock, as of the last renewal."""
        return self._term.expires_at

    @property
    def is_valid(self) -> bool:
        return self._term.is_valid

    @property
    def remaining_s(self) -> float:
        """Seconds until the local deadline, if no further renewal succeeds; 0 once the term is over."""
        return self._term.remaining_s

    @property
    def ended_because(self) -> str | None:
        return self._term.ended_because

    def check(self) -> None:
        """Raise LeaseLost unless the term is valid at this instant."""
        self._term.check()

    def lost(self, why: str) -> LeaseLost:
        """End the term and return the error to raise."""
        return self._term.lost(why)

    def guard(self) -> _term.Guard:
        """A condition that makes one statement a fenced write; see Guard. Raises LeaseLost if the term is over."""
        return self._term.guard()
