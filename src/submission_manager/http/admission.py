"""Decides whether a target accepts another new intent: not while its `maxBacklog` are pending.

The database counts in the background, and this instance adds what it stored since the count began and what it is about
to store. So the limit is exceeded by at most what the other instances store between two counts. A count that is too old
is ignored: then every intent is accepted, as without a limit.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fencehold import FactSink, FenceholdError
from submission_manager.ports import IntakePort

LOOK_EVERY_S = 1.0
LOOK_LIMIT_S = 5.0
LOOK_SHARE = 10  # the pause is so many times as long as a count: counting 100,000 rows is not free
OLD_S = 15.0  # added to two pauses between counts: so one failed count does not matter
LOG_EVERY_S = 60.0


class Admission:
    """Decides from counts in memory whether a target accepts a new intent; `run` updates the counts."""

    def __init__(self, intake: IntakePort, backlogs_max: Mapping[str, int], facts: FactSink) -> None:
        self._intake, self._most, self._facts = intake, backlogs_max, facts
        self._pending: Mapping[str, int] = {}
        self._counted_s: float | None = None
        self._pause_s = 0.0  # between two counts
        self._in_hand: Counter[str] = Counter()  # admitted and not stored yet; repeated submissions too
        self._stored: Counter[str] = Counter()  # stored by this instance since it started
        self._stored_before: Counter[str] = Counter()  # the part of `_stored` from before the current count began
        self._refused: Counter[str] = Counter()  # since the target's last log line
        self._pending_then: dict[str, int] = {}  # pending intents at the newest refusal
        self._logged_s: dict[str, float] = {}

    def most(self, target: str) -> int | None:
        """Return the target's limit if it is reached, so that the intent is refused; None if the intent is accepted."""
        most = self._most.get(target)
        if most is None or self._counted_s is None:
            return None
        if time.monotonic() - self._counted_s > OLD_S + 2 * self._pause_s:
            return None
        return most if self._now_pending(target) >= most else None

    @contextmanager
    def place(self, target: str) -> Iterator[None]:
        """Count one accepted intent as pending inside the block, while it is being stored.

        Enter the block in the same turn of the event loop as the call of `most` that accepted the intent.
        """
        self._in_hand[target] += 1
        try:
            yield
        finally:
            self._in_hand[target] -= 1

    def stored(self, target: str) -> None:
        if target in self._most:
            self._stored[target] += 1

    def refused(self, target: str) -> None:
        self._refused[target] += 1
        self._pending_then[target] = self._now_pending(target)

    async def run(self) -> None:
        """Count the pending intents in the database again and again, until cancelled."""
        while True:
            began_s = time.monotonic()
            await self._look()
            self._log_refused()
            self._pause_s = max(LOOK_EVERY_S, LOOK_SHARE * (time.monotonic() - began_s))
            await asyncio.sleep(self._pause_s)

    # --- parts ---

    def _now_pending(self, target: str) -> int:
        stored = self._stored[target] - self._stored_before[target]
        return self._pending.get(target, 0) + stored + self._in_hand[target]

    async def _look(self) -> None:
        began_s, stored = time.monotonic(), Counter(self._stored)
        try:
            pending = await self._intake.pending_counts(LOOK_LIMIT_S)
        except Exception as error:  # noqa: BLE001 - whatever the error, the next count may work
            words = str(error) if isinstance(error, FenceholdError) else f"{type(error).__name__}: {error}"
            if self._may_log(""):
                self._facts.fact(
                    "backlog_uncounted",
                    sql_error=words,
                    why="the pending intents could not be counted, so maxBacklog is not applied",
                )
            return
        self._pending, self._counted_s, self._stored_before = pending, began_s, stored

    def _log_refused(self) -> None:
        for target in [target for target in self._refused if self._may_log(target)]:
            self._facts.fact(
                "backlog_full", submission_target=target, pending=self._pending_then[target],
                max_backlog=self._most[target], refused=self._refused.pop(target),
            )  # fmt: skip

    def _may_log(self, what: str) -> bool:
        """Return whether a log line is allowed: once a minute for each target.

        A full target refuses the intents of every client.
        """
        now_s = time.monotonic()
        if now_s - self._logged_s.get(what, -LOG_EVERY_S) < LOG_EVERY_S:
            return False
        self._logged_s[what] = now_s
        return True
