"""What a class of tests, or one test, needs of a store; and why it does not apply to a store that lacks it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from fencehold.testing.harness import Can

S = TypeVar("S")


def needs(*abilities: Can) -> Callable[[S], S]:
    """Mark a class of tests, or one test: only for a store that can do all of these. A subclass inherits it."""
    return _marked("needs", abilities)


def unless(*abilities: Can) -> Callable[[S], S]:
    """Mark a class of tests, or one test: only for a store that can do none of these."""
    return _marked("unless", abilities)


def why_not(subject: object, can: Collection[Can]) -> str:
    """Return why the subject does not apply to a store that can do these; empty: it applies."""
    missing = [one.value for one in Can if one in getattr(subject, "needs", ()) and one not in can]
    if missing:
        return f"needs {' and '.join(missing)}"
    present = [one.value for one in Can if one in getattr(subject, "unless", ()) and one in can]
    return f"only without {' or '.join(present)}" if present else ""


def _marked(name: str, abilities: tuple[Can, ...]) -> Callable[[S], S]:
    def mark(subject: S) -> S:
        setattr(subject, name, {*getattr(subject, name, ()), *abilities})
        return subject

    return mark
