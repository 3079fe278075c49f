"""The strategies that choose the wait between attempts; they are those of fencehold's election."""

from fencehold.model.election.retry import (
    DecorrelatedJitter,
    ExponentialBackoff,
    FixedInterval,
    RetryContext,
    RetryStrategy,
)

__all__ = ["DecorrelatedJitter", "ExponentialBackoff", "FixedInterval", "RetryContext", "RetryStrategy"]
