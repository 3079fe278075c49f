"""The candidates of one store: at most one for each lease and holder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from fencehold.model.errors import ConfigurationError


class Candidate(Protocol):
    name: str
    holder_id: str


C = TypeVar("C", bound=Candidate)


class Candidates(Generic[C]):
    """Weak: a candidate that was never started, and is no longer anybody's, stands in nobody's way."""

    def __init__(self) -> None:
        self._by_holder: WeakValueDictionary[tuple[str, str], C] = WeakValueDictionary()

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._by_holder.values()))

    def enrol(self, candidate: C) -> None:
        """Raises ConfigurationError (`duplicate_holder`): two would take each other's renewals for their own."""
        who = (candidate.name, candidate.holder_id)
        if self._by_holder.get(who, candidate) is not candidate:
            raise ConfigurationError(
                f"{candidate.holder_id!r} is already a candidate for lease {candidate.name!r} in this store.",
                hint="Use one leader per lease and process, or give each its own holder_id.",
                code="duplicate_holder",
            )
        self._by_holder[who] = candidate

    def withdraw(self, candidate: C) -> None:
        self._by_holder.pop((candidate.name, candidate.holder_id), None)
