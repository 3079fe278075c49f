"""When the database last answered this process, whatever it was asked, and since when it has not."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fencehold.model.errors import LeaseLost, Unavailable, Uncertain

#: Nobody said anything. Every other error is an answer; but one that was not sent says nothing either way.
SILENT = ("unreachable", "no_answer", "no_answer_yet", "connection_lost", "unavailable", "uncertain")
NOT_SENT = ("busy", "store_closed")
#: What fencehold tells of the lease when the database has answered.
ANSWERS = ("leader_acquired", "leader_renewed", "leader_released", "store_answers")

T = TypeVar("T")


class Answers:
    """Any answer ends a silence; a call that is given up begins one only if nobody was answered since it was asked.

    Also a sink for facts about the lease. Any thread.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self.last_s = now_s()
        self._silent_since_s: float | None = None

    def answered(self) -> None:
        self.last_s, self._silent_since_s = self._now_s(), None

    def unanswered(self, asked_s: float) -> None:
        if self.last_s <= asked_s and self._silent_since_s is None:
            self._silent_since_s = asked_s

    def silent_s(self) -> float | None:
        """How long the database has not answered; None: it did, the last time anybody asked."""
        since_s = self._silent_since_s
        return None if since_s is None else self._now_s() - since_s

    async def of(self, asked: Awaitable[T]) -> T:
        """The same, and it is noted whether there was an answer."""
        asked_s = self._now_s()
        try:
            answer = await asked
        except LeaseLost:  # said by a clock of ours, most often
            raise
        except Exception as error:
            self._judge(error, asked_s)
            raise
        self.answered()
        return answer

    def _judge(self, error: Exception, asked_s: float) -> None:
        if isinstance(error, Unavailable | Uncertain) and error.code in SILENT:
            self.unanswered(asked_s)
        elif not (isinstance(error, Unavailable | Uncertain) and error.code in NOT_SENT):
            self.answered()

    def fact(self, event: str, **fields: Any) -> None:
        if event in ANSWERS or (event == "leader_acquire_failed" and not fields.get("sql_error")):
            self.answered()
