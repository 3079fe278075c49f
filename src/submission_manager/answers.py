"""Records when the database last answered this process, and for how long it has not answered."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fencehold import LeaseLost, Unavailable, Uncertain

#: Error codes of calls that got no answer. Every other error is an answer, except NOT_SENT: those calls were never
#: sent, so they show neither that the database answers nor that it does not.
SILENT = ("unreachable", "no_answer", "no_answer_yet", "connection_lost", "unavailable", "uncertain")
NOT_SENT = ("busy", "store_closed")
#: Lease facts from fencehold which show that the database has answered.
ANSWERS = ("leader_acquired", "leader_renewed", "leader_released", "store_answers")

T = TypeVar("T")


class Answers:
    """Measures for how long the database has not answered. Any answer ends this silence.

    A call without an answer begins a silence only if no other call was answered since it was sent. This class is also a
    sink for facts about the lease. Safe to use from any thread.
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
        """For how many seconds the database has not answered; None if it answered the last call."""
        since_s = self._silent_since_s
        return None if since_s is None else self._now_s() - since_s

    async def of(self, asked: Awaitable[T]) -> T:
        """Await `asked` and return its result or raise its error; also record whether the database answered."""
        asked_s = self._now_s()
        try:
            answer = await asked
        except LeaseLost:  # most often raised by our own clock, so it shows nothing about the database
            raise
        except Exception as error:
            code = error.code if isinstance(error, Unavailable | Uncertain) else ""
            if code in SILENT:
                self.unanswered(asked_s)
            elif code not in NOT_SENT:
                self.answered()
            raise
        self.answered()
        return answer

    def fact(self, event: str, **fields: Any) -> None:
        if event in ANSWERS or (event == "leader_acquire_failed" and not fields.get("sql_error")):
            self.answered()
