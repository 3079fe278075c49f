"""Splits a batch in which an id may occur twice into rounds: parts in which each id occurs once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")


def rounds(items: Sequence[T], id_of: Callable[[T], Hashable]) -> list[list[T]]:
    """Return the items as rounds, one after the other; in each of them an id occurs at most once.

    A statement is run once for each round. Its rows name the id only, so with two keys of one id in a round nobody
    could tell which key a row answers.
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
