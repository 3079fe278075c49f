"""What `/health/live` and `/health/ready` say beside the metrics: told by the event loop, read by the server's threads.

Every answer comes from memory and at once: a database that hangs is one that has not answered for too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fencehold.model.errors import FenceholdError
from fencehold.runtime.core.clock import BootClock

TURN_EVERY_S = 0.5
ASK_EVERY_S = 2.0
ASK_AGAIN_S = 0.5  # after an answer that something is wrong
ANSWER_WITHIN_S = 3.0  # a loop that has not turned, and a database that has not answered, for longer is not ready
BLOCKED_AFTER_S = 1.5  # it turns every TURN_EVERY_S: one that is not ready, and silent for longer, is blocked
SILENT_S_MAX = 30.0

CLOCK = BootClock()

NowS = Callable[[], float]
Ask = Callable[[], Awaitable[object]]
BlockedBy = Callable[[], str]


@dataclass(frozen=True)
class Problem:
    """Why an answer is 503."""

    code: str
    message: str


class Health:
    """`is_served` False: nobody can ask, so the database is not asked either."""

    def __init__(self, is_served: bool = True, now_s: NowS = CLOCK.now_s) -> None:
        self._is_served = is_served
        self._now_s = now_s
        self._turned_s = now_s()
        self._is_turning = False  # inside `watched`: before and after it nobody tells
        self._asked_s: float | None = None  # since when a question to the database is without an answer
        self._told: Problem | None = Problem("starting", "It has not begun yet.")
        self._silent_s_max: Callable[[], float] = lambda: SILENT_S_MAX
        self._blocked_by: BlockedBy = str

    @asynccontextmanager
    async def watched(
        self, ask: Ask, silent_s_max: Callable[[], float] = lambda: SILENT_S_MAX, blocked_by: BlockedBy = str
    ) -> AsyncIterator[None]:
        """Inside the block the loop tells that it turns, and `ask` is called now and then: it raises what is wrong.

        A loop that has not turned for longer than `silent_s_max` is not live. `blocked_by` is called, on any thread,
        while it does not turn, and says what it is doing; no words: nobody knows.
        """
        self._silent_s_max, self._blocked_by = silent_s_max, blocked_by
        tasks = [asyncio.create_task(one) for one in (self._turn(), self._ask(ask))] if self._is_served else []
        try:
            yield
        finally:
            self._is_turning, self._told = False, Problem("stopping", "It is stopping, or has ended.")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def live(self) -> list[Problem]:
        """None: the process's event loop turns."""
        silent_s = self._now_s() - self._turned_s
        return [self._silent(silent_s)] if silent_s > self._silent_s_max() else []

    def ready(self) -> list[Problem]:
        """None: the loop turns, the database answers and the table is there.

        Of a loop that does not turn nothing else is known: what it told last may long be otherwise.
        """
        now_s, asked_s, told = self._now_s(), self._asked_s, self._told
        silent_s = now_s - self._turned_s
        if self._is_turning and silent_s > (ANSWER_WITHIN_S if told is None else BLOCKED_AFTER_S):
            return [self._silent(silent_s)]
        if asked_s is not None and now_s - asked_s > ANSWER_WITHIN_S:
            return [Problem("no_answer", f"The database has not answered for {now_s - asked_s:.0f} s.")]
        return [told] if told is not None else []

    def _silent(self, silent_s: float) -> Problem:
        why = self._blocked_by()
        return Problem(
            "loop_blocked", f"The event loop has not turned for {silent_s:.0f} s{f': {why}' if why else ''}."
        )

    # --- on the loop ---

    async def _turn(self) -> None:
        self._is_turning = True
        while True:
            self._turned_s = self._now_s()
            await asyncio.sleep(TURN_EVERY_S)

    async def _ask(self, ask: Ask) -> None:
        while True:
            self._asked_s = self._now_s()
            try:
                await ask()
                self._told = None
            except FenceholdError as error:
                self._told = Problem(error.code, error.message)
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody may be told that all is well
                self._told = Problem("internal_error", type(error).__name__)
            self._asked_s = None
            await asyncio.sleep(ASK_EVERY_S if self._told is None else ASK_AGAIN_S)
