"""How long to wait between attempts, shared with fencehold's election."""

from fencehold.model.election.retry import (
    DecorrelatedJitter,
    ExponentialBackoff,
    FixedInterval,
    RetryContext,
    RetryStrategy,
)

__all__ = ["DecorrelatedJitter", "ExponentialBackoff", "FixedInterval", "RetryContext", "RetryStrategy"]
