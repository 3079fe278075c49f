"""Splits a batch in which an id may occur twice into rounds, so that one statement can answer by id."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")


def rounds(items: Sequence[T], id_of: Callable[[T], Hashable]) -> list[list[T]]:
    """Return rounds in which each id occurs at most once.

    A statement answers by id, so with two keys for one row in a round, its answer would not show which key it is for.
    """
    found: list[list[T]] = []
    left: Sequence[T] = items
    while left:
        once: dict[Hashable, T] = {}
        again: list[T] = []
        for item in left:
            again.append(item) if id_of(item) in once else once.setdefault(id_of(item), item)
        found.append(list(once.values()))
        left = again
    return found
