"""Puts off intents that cannot be written now, such as those with a locked row: longer each time, and logged rarely.

Another session's lock on one row is not a failure of the database. It does not end the term, because every other leader
would meet the same lock.
"""

from __future__ import annotations

from fencehold import FactSink, FenceholdError, Unavailable
from submission_manager.model.intents import ERROR_CHARS_MAX
from submission_manager.rare_log import RareLog

PAUSE_S, PAUSE_MAX_S = 1.0, 30.0
POISON_PAUSE_S = 30.0
LOG_EVERY_S = 60.0
INTENTS_MAX = 10_000
#: Error codes when another session has locked what a write needs; nothing was changed.
LOCKED = ("locked", "canceled")

HELD_UP = "another session has locked its row, or a table that is needed; it is tried again, after 30 s at the latest"
SILENT = "the database did not answer; it is tried again, after 30 s at the latest"
POISON = "writing it failed with an unexpected error; other intents are not affected"


def is_locked(error: Exception) -> bool:
    return isinstance(error, Unavailable) and error.code in LOCKED


def unanswered(limit_s: float) -> Unavailable:
    """Return the error for a write that timed out before the database answered."""
    return Unavailable(f"No answer within {limit_s:.1f} s.", code="no_answer")


class Parking:
    """Remembers how often each intent was put off, because it could not be written, until it can be written."""

    def __init__(self, facts: FactSink) -> None:
        self._parked = RareLog(facts, "intent_parked", LOG_EVERY_S)
        self._times: dict[str, int] = {}

    def put_off(self, intent_id: str, write: str, error: FenceholdError) -> float:
        """Log a write that failed because of a lock.

        Returns the pause in seconds before the next try: longer each time.
        """
        times = self._times[intent_id] = self._times.pop(intent_id, 0) + 1
        if len(self._times) > INTENTS_MAX:
            del self._times[next(iter(self._times))]
        self.held_up([intent_id], write, error)
        return min(PAUSE_S * (1 << min(times - 1, 10)), PAUSE_MAX_S)

    def held_up(self, intent_ids: list[str], write: str, error: FenceholdError) -> None:
        self._fact(f"{write} {error.code}", intent_ids, write, HELD_UP if is_locked(error) else SILENT, error)

    def poisoned(self, intent_ids: list[str], write: str, error: Exception) -> float:
        """Log a write that failed, but not because of a lock; the reason may last. Returns the pause in seconds."""
        self._fact(f"{write} {type(error).__name__}", intent_ids, write, POISON, error)
        return POISON_PAUSE_S

    def freed(self, intent_id: str) -> None:
        self._times.pop(intent_id, None)

    def close(self) -> None:
        self._parked.close()

    def _fact(self, kind: str, intent_ids: list[str], write: str, why: str, error: Exception) -> None:
        text = str(error) if isinstance(error, FenceholdError) else f"{type(error).__name__}: {error}".rstrip(": ")
        counts = {"intents": len(intent_ids)}
        self._parked.add(kind, counts, intent_id=intent_ids[0], write=write, why=why, error=text[:ERROR_CHARS_MAX])
