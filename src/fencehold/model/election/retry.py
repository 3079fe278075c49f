"""How long a follower waits between attempts: pure arithmetic that never overflows, whatever the attempt number."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class RetryContext:
    """What a retry strategy may use to choose a delay. `attempt` counts from 1 in each cycle."""

    attempt: int
    elapsed_s: float
    last_error: Exception | None = None


@runtime_checkable
class RetryStrategy(Protocol):
    """Chooses the seconds to wait before the next attempt; None means to give up."""

    def next_delay_s(self, ctx: RetryContext) -> float | None: ...


@dataclass(frozen=True)
class ExponentialBackoff:
    """A retry strategy: the delay grows with each attempt, min(base * multiplier^(attempt-1), max_s).

    It never overflows: attempt 5,000 is as safe as attempt 5.
    """

    base_s: float = 1.0
    max_s: float = 30.0
    multiplier: float = 2.0

    def next_delay_s(self, ctx: RetryContext) -> float | None:
        try:
            return float(min(self.base_s * self.multiplier ** (ctx.attempt - 1), self.max_s))
        except OverflowError:
            return self.max_s


@dataclass(frozen=True)
class FixedInterval:
    """A retry strategy: the delay is always the same."""

    interval_s: float = 5.0

    def next_delay_s(self, ctx: RetryContext) -> float | None:
        return self.interval_s


@dataclass
class DecorrelatedJitter:
    """A retry strategy: the delay is random, min(max_s, random(base_s, previous * 3)).

    It spreads the retries of processes that failed at the same time.
    """

    base_s: float = 1.0
    max_s: float = 30.0
    rng: random.Random = field(default_factory=random.Random, repr=False)
    _previous_s: float = field(default=0.0, init=False, repr=False)

    def next_delay_s(self, ctx: RetryContext) -> float | None:
        previous_s = self.base_s if ctx.attempt <= 1 else max(self.base_s, self._previous_s)
        self._previous_s = min(self.max_s, self.rng.uniform(self.base_s, previous_s * 3))
        return self._previous_s
