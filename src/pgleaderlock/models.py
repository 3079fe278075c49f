"""States and callback types, shared with fencehold's election."""

from fencehold.model.election import LockState
from fencehold.runtime.callbacks import Callback, ErrorCallback, StateChangeCallback

__all__ = ["Callback", "ErrorCallback", "LockState", "StateChangeCallback"]
