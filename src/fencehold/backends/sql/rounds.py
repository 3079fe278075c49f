"""Batches in which a key may come twice, cut so that one statement can answer by id."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")


def rounds(items: Sequence[T], id_of: Callable[[T], Hashable]) -> list[list[T]]:
    """Each id at most once per round: a statement answers by id, and of two keys to one row it must say which."""
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
