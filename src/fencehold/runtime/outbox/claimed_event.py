"""Events this process is working on: when each stops being ours, whatever any thread or await is doing.

They are renewed on the keeper's thread, so a handler that blocks its event loop keeps its event.
"""

from __future__ import annotations

import asyncio

from fencehold.ports.clock import Clock
from fencehold.ports.events import Claim, ClaimKey
from fencehold.runtime.core.renewals import Kept

UNPROVEN = "heartbeat_failed"


class ClaimedEvent(Kept):
    """One claimed event from the claim to the end of its handler."""

    __slots__ = ("called_off", "claim", "hung_logged", "is_shared", "task", "warned_s")

    def __init__(self, claim: Claim, clock: Clock, sent_s: float, trusted_s: float) -> None:
        super().__init__(clock, sent_s, trusted_s)
        self.claim = claim
        self.is_shared = False  # one call of the handler for it and for others
        self.called_off = False  # cancelled for the worker's sake, or that of another of its list: no fault of its own
        self.task: asyncio.Task[None] | None = None
        self.warned_s = 0.0  # the age at which a warning last told of it
        self.hung_logged = False  # a warning told that it runs on after its lease was lost

    @property
    def key(self) -> ClaimKey:
        return self.claim.key
