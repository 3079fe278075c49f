"""How long to wait between attempts, shared with fencehold's election."""

from __future__ import annotations

from fencehold.model.retry import (
    DecorrelatedJitter,
    ExponentialBackoff,
    FixedInterval,
    RetryContext,
    RetryStrategy,
)
from pgleaderlock.errors import HopelessError

__all__ = ["DecorrelatedJitter", "ExponentialBackoff", "FixedInterval", "RetryContext", "RetryStrategy"]


class GivesUpWhenHopeless:
    """The caller's strategy, except that it gives up on what no retry can mend."""

    def __init__(self, inner: RetryStrategy) -> None:
        self._inner = inner

    def next_delay_s(self, ctx: RetryContext) -> float | None:
        return None if isinstance(ctx.last_error, HopelessError) else self._inner.next_delay_s(ctx)
