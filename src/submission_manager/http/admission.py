"""Whether a target takes another new intent: not while its `maxBacklog` are pending.

The database counts, in the background; what this instance stored since the count began is added to it, and what it is
just about to store. So the limit is overrun by at most what the other instances store between two looks. A count that
is old is not believed: then everything is taken, as without a limit.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fencehold.model.errors import FenceholdError
from fencehold.ports.facts import FactSink
from submission_manager.ports import IntakePort

LOOK_EVERY_S = 1.0
LOOK_LIMIT_S = 5.0
LOOK_SHARE = 10  # a look takes at most so small a part of the time: counting 100,000 rows is not free
OLD_S = 15.0  # beyond two pauses between looks: so one look that failed does not matter
TELL_EVERY_S = 60.0


class Admission:
    """Answers from memory; `run` keeps the memory."""

    def __init__(self, intake: IntakePort, backlogs_max: Mapping[str, int], facts: FactSink) -> None:
        self._intake, self._most, self._facts = intake, backlogs_max, facts
        self._pending: Mapping[str, int] = {}
        self._counted_s: float | None = None
        self._pause_s = 0.0  # between two looks
        self._in_hand: Counter[str] = Counter()  # let in, and not stored yet; a repeat among them too
        self._stored: Counter[str] = Counter()  # here, ever
        self._stored_before: Counter[str] = Counter()  # of those, before the count in use began
        self._refused: Counter[str] = Counter()  # since the log last heard of it
        self._pending_then: dict[str, int] = {}  # at the newest of them
        self._told_s: dict[str, float] = {}

    def most(self, target: str) -> int | None:
        """How many may be pending, if there are as many already; None: another is taken."""
        most = self._most.get(target)
        if most is None or self._counted_s is None:
            return None
        if time.monotonic() - self._counted_s > OLD_S + 2 * self._pause_s:
            return None
        return most if self._now_pending(target) >= most else None

    @contextmanager
    def place(self, target: str) -> Iterator[None]:
        """For one that is let in, while it is stored. To be taken in the same turn of the loop as `most` was asked."""
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
        """Until it is cancelled."""
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
        except Exception as error:  # noqa: BLE001 - whatever it was, the next look may be better
            words = str(error) if isinstance(error, FenceholdError) else f"{type(error).__name__}: {error}"
            if self._may_tell(""):
                self._facts.fact("backlog_uncounted", sql_error=words, why="new intents are taken whatever waits")
            return
        self._pending, self._counted_s, self._stored_before = pending, began_s, stored

    def _log_refused(self) -> None:
        for target in [target for target in self._refused if self._may_tell(target)]:
            self._facts.fact(
                "backlog_full", submission_target=target, pending=self._pending_then[target],
                max_backlog=self._most[target], refused=self._refused.pop(target),
            )  # fmt: skip

    def _may_tell(self, what: str) -> bool:
        """Once a minute of each: a full target refuses every client."""
        now_s = time.monotonic()
        if now_s - self._told_s.get(what, -TELL_EVERY_S) < TELL_EVERY_S:
            return False
        self._told_s[what] = now_s
        return True
