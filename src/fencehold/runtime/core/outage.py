"""Logs an outage of the store while something waits for it: at its start, once a minute, and at its end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencehold.model.election.retry import DecorrelatedJitter, RetryContext
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.ports.clock import Clock

REMIND_EVERY_S = 60.0
PAUSE_S_MAX = 2.0

T = TypeVar("T")
Fact = Callable[..., None]


class Outage:
    """Logs `store_unreachable` at the first failure with each error code and then once a minute; at the end
    `store_answers`.

    `fact` takes the fact's name and fields, and adds who is waiting.
    """

    def __init__(self, fact: Fact, clock: Clock) -> None:
        self._fact = fact
        self._clock = clock
        self._began_s: float | None = None
        self._logged_s: dict[str, float] = {}
        self._failures = 0
        self._pauses = DecorrelatedJitter(base_s=0.1, max_s=PAUSE_S_MAX)

    async def wait_for(self, ask: Callable[[], Awaitable[T]], within_s: float | None = None) -> T:
        """Call `ask` until it succeeds, and return its result. After each failure it pauses for at most 2 s.

        Raises ConfigurationError at once, because waiting does not help. Raises any other FenceholdError when the next
        try would come after `within_s`.
        """
        ends_s = math.inf if within_s is None else self._clock.now_s() + within_s
        while True:
            try:
                answer = await ask()
                self.answered()
                return answer
            except ConfigurationError:
                raise
            except FenceholdError as error:
                pause_s = self._pauses.next_delay_s(RetryContext(self._failures + 1, 0.0, error)) or PAUSE_S_MAX
                if self._clock.now_s() + pause_s >= ends_s:
                    raise
                self.failed(error)
            await asyncio.sleep(pause_s)

    def failed(self, error: FenceholdError) -> None:
        """Record that a request to the store has failed and will be repeated; log it if it is time to."""
        now_s = self._clock.now_s()
        self._failures += 1
        if self._began_s is None:
            self._began_s = now_s
        if now_s - self._logged_s.get(error.code, -math.inf) < REMIND_EVERY_S:
            return
        self._logged_s[error.code] = now_s
        self._fact(
            "store_unreachable", code=error.code, error=error.message, hint=error.hint,
            waited_s=round(now_s - self._began_s, 1), tries=self._failures,
        )  # fmt: skip

    def answered(self) -> None:
        """Record that the store has answered, whatever the answer: the outage is over."""
        if self._began_s is None:
            return
        began_s, self._began_s, self._failures = self._began_s, None, 0
        self._logged_s.clear()
        self._fact("store_answers", waited_s=round(self._clock.now_s() - began_s, 1))
