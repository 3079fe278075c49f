"""States, callback types and what a retry strategy is asked with: shared with fencehold's election."""

from fencehold.model.election import LockState
from fencehold.model.retry import RetryContext
from fencehold.runtime.callbacks import Callback, ErrorCallback, StateChangeCallback

__all__ = ["Callback", "ErrorCallback", "LockState", "RetryContext", "StateChangeCallback"]
