"""The states, the callback types and the argument of a retry strategy; they are those of fencehold's election."""

from fencehold.model.election.election import LockState
from fencehold.model.election.retry import RetryContext
from fencehold.runtime.core.callbacks import Callback, ErrorCallback, StateChangeCallback

__all__ = ["Callback", "ErrorCallback", "LockState", "RetryContext", "StateChangeCallback"]
