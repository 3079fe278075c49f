"""States, callback types and what a retry strategy is asked with: shared with fencehold's election."""

from fencehold.model.election.election import LockState
from fencehold.model.election.retry import RetryContext
from fencehold.runtime.core.callbacks import Callback, ErrorCallback, StateChangeCallback

__all__ = ["Callback", "ErrorCallback", "LockState", "RetryContext", "StateChangeCallback"]
