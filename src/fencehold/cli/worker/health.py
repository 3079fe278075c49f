"""The state behind `/health/live` and `/health/ready`: set on the event loop, read by the HTTP server's threads.

Every answer comes from memory, at once: a hanging database shows as one that has not answered for too long.
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
ASK_AGAIN_S = 0.5  # after a problem was found
ANSWER_WITHIN_S = 3.0  # not ready if the loop has not turned, or the database has not answered, for longer
BLOCKED_AFTER_S = 1.5  # a loop that is not ready, and has not turned for longer, is blocked
SILENT_S_MAX = 30.0

CLOCK = BootClock()

NowS = Callable[[], float]
Ask = Callable[[], Awaitable[object]]
BlockedBy = Callable[[], str]


@dataclass(frozen=True)
class Problem:
    """The reason why a health request is answered with 503."""

    code: str
    message: str


class Health:
    """The health of this process. `is_served` False: nobody can read it, so the database is not probed."""

    def __init__(self, is_served: bool = True, now_s: NowS = CLOCK.now_s) -> None:
        self._is_served = is_served
        self._now_s = now_s
        self._turned_s = now_s()
        self._is_turning = False  # True inside `watched`: only there the loop sets its time
        self._asked_s: float | None = None  # when the database was asked, if it has not answered yet
        self._told: Problem | None = Problem("starting", "It has not begun yet.")
        self._silent_s_max: Callable[[], float] = lambda: SILENT_S_MAX
        self._blocked_by: BlockedBy = str

    @asynccontextmanager
    async def watched(
        self, ask: Ask, silent_s_max: Callable[[], float] = lambda: SILENT_S_MAX, blocked_by: BlockedBy = str
    ) -> AsyncIterator[None]:
        """Inside the block, record that the loop turns, and call `ask` at intervals; it raises if something is wrong.

        A loop that has not turned for longer than `silent_s_max` is not live. While it does not turn, `blocked_by` is
        called, on any thread; it returns what the loop is doing, or an empty text if unknown.
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
        """The problems that make the process not live: its event loop does not turn. Empty if it turns."""
        silent_s = self._now_s() - self._turned_s
        return [self._silent(silent_s)] if silent_s > self._silent_s_max() else []

    def ready(self) -> list[Problem]:
        """The problems that make the process not ready. Empty: the loop turns, the database answers, the table exists.

        If the loop does not turn, only that is reported: its last news may be outdated.
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
            except Exception as error:  # noqa: BLE001 - after any error the process must not be reported as ready
                self._told = Problem("internal_error", type(error).__name__)
            self._asked_s = None
            await asyncio.sleep(ASK_EVERY_S if self._told is None else ASK_AGAIN_S)
