"""Logs missed deadlines for each target: the first at once, then a count once a minute."""

from __future__ import annotations

from dataclasses import dataclass

from fencehold import FactSink
from submission_manager.rare_log import RareLines

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


class LateWatch(RareLines):
    """Logs a target that misses deadlines, until a minute has none. `close` logs what is left."""

    def __init__(self, facts: FactSink) -> None:
        super().__init__(LOG_EVERY_S)
        self._facts = facts
        self._missed: dict[str, Missed] = {}

    def missed(self, target: str, intent_id: str, *, is_accepted: bool = False, is_early: bool = False) -> None:
        """Count an intent ended by its deadline. `is_accepted`: the provider has it; `is_early`: not yet passed."""
        missed = self._missed.setdefault(target, Missed())
        missed.intents += 1
        missed.no_time_left += is_early
        missed.accepted_late += is_accepted
        missed.newest = intent_id
        self._occurred(target)

    def _log(self, kind: str) -> bool:
        missed = self._missed.pop(kind, None)
        if missed is None:
            return False
        self._facts.fact(
            "deadlines_missed", submission_target=kind, intents=missed.intents, accepted_late=missed.accepted_late,
            no_time_left=missed.no_time_left, intent_id=missed.newest, why=missed.why,
        )  # fmt: skip
        return True
