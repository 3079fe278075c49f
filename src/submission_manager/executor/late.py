"""Logs missed deadlines for each target: the first at once, then a count once a minute."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fencehold.ports.facts import FactSink

LOG_EVERY_S = 60.0
PASSED = "their deadline passed before the gateway's acceptance was on record"
NO_TIME = "no time was left for another attempt before their deadline"
SOME_NO_TIME = "; those with no_time_left ended earlier: " + NO_TIME
TAKEN = "; those accepted_late were taken by the provider all the same"


@dataclass
class Missed:
    """The counts of one target since its last log line."""

    intents: int = 0
    no_time_left: int = 0
    accepted_late: int = 0
    newest: str = ""

    @property
    def why(self) -> str:
        if self.no_time_left == self.intents:
            return NO_TIME
        return PASSED + (SOME_NO_TIME if self.no_time_left else "") + (TAKEN if self.accepted_late else "")


class LateWatch:
    """Logs a target that misses deadlines, until a minute has none. `close` logs what is left."""

    def __init__(self, facts: FactSink) -> None:
        self._facts = facts
        self._missed: dict[str, Missed] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def missed(self, target: str, intent_id: str, *, is_accepted: bool = False, is_early: bool = False) -> None:
        """Count an intent ended by its deadline. `is_accepted`: the provider has it; `is_early`: not yet passed."""
        missed = self._missed.setdefault(target, Missed())
        missed.intents += 1
        missed.no_time_left += is_early
        missed.accepted_late += is_accepted
        missed.newest = intent_id
        if target not in self._timers:
            self._summed_up(target)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for target in list(self._missed):
            self._fact(target)
        self._timers.clear()

    def _summed_up(self, target: str) -> None:
        if self._fact(target):
            self._timers[target] = asyncio.get_running_loop().call_later(LOG_EVERY_S, self._summed_up, target)
        else:
            del self._timers[target]

    def _fact(self, target: str) -> bool:
        """Log the count since the last line. Returns False, and logs nothing, if there was none."""
        missed = self._missed.pop(target, None)
        if missed is None:
            return False
        self._facts.fact(
            "deadlines_missed", submission_target=target, intents=missed.intents, accepted_late=missed.accepted_late,
            no_time_left=missed.no_time_left, intent_id=missed.newest, why=missed.why,
        )  # fmt: skip
        return True
