"""What fenced transactions share on every SQL database: the time limit, which is the end of the term, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencehold.model.election.rules import TermKey
from fencehold.model.errors import ConfigurationError, LeaseLost
from fencehold.ports.fence import RemainingS

# Why a lease is lost, as the errors say it.
OVER = "the term is over"
BEFORE_STATEMENT = "the term ended before this statement was sent"
UNDER_WAY = "the term ended while a statement was under way; nothing was committed"
BEFORE_COMMIT = "the term ended before the commit"
REFUSED = "the store refused the fence: it has expired or another holds it"


class FencedTerm:
    """The term of a fenced transaction: which lease it has, and how many seconds are left of the term."""

    def __init__(self, key: TermKey, remaining_s: RemainingS) -> None:
        self.key, self.remaining_s = key, remaining_s

    def check(self, why: str = OVER) -> None:
        """Raise LeaseLost, with the reason `why`, if the term is over."""
        if self.remaining_s() <= 0:
            raise lost(self.key, why)


def lost(key: TermKey, why: str) -> LeaseLost:
    return LeaseLost(f"Lease {key.name!r} epoch {key.epoch}: {why}.", name=key.name, epoch=key.epoch)


def fence_gone(hint: str) -> ConfigurationError:
    return ConfigurationError(
        "The fenced transaction was ended inside its block; what follows would not be fenced.",
        hint=hint,
        code="fence_gone",
    )


def given_up() -> ConfigurationError:
    """Return the error for each later statement of a transaction in which the caller gave up a statement.

    After a timeout or a cancel it is not known whether that statement was executed, so the transaction is not
    committed.
    """
    return ConfigurationError(
        "A statement of this transaction was given up before its answer came; nothing of it is committed.",
        hint="Let the timeout, or the cancellation, leave the block.",
        code="statement_given_up",
    )


def guard_params(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with `fencehold_` before each name.

    The guard is put into the caller's own statement, whose parameters must not have the same names.
    """
    return {f"fencehold_{name}": value for name, value in values.items()}
