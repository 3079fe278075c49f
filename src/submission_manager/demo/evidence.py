"""The verdict on a run, computed from the database's rows, its audit log, and the gateway's counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from submission_manager.demo.audit import Evidence, Seen
from submission_manager.model.outcomes import OUTCOME_UNKNOWN

GRANTED, STARTED, RECORDED = "granted", "started", "recorded"


@dataclass(frozen=True)
class Verdict:
    intents_accepted: int
    intents_lost: int  # acknowledged to a client, but not in the database or not ended
    starts_under_an_old_epoch: int
    records_under_an_old_epoch: int
    attempts_without_start: int  # recorded attempts without exactly one recorded start
    calls_without_start: int
    calls_repeated: int  # of the same attempt
    intents_called_too_often: int  # beyond their max_attempts, as the gateway counted
    attempts_per_intent: dict[int, int]
    unknown_outcomes: int
    calls: int

    @property
    def faults(self) -> dict[str, int]:
        return {
            "intents_lost": self.intents_lost,
            "starts_under_an_old_epoch": self.starts_under_an_old_epoch,
            "records_under_an_old_epoch": self.records_under_an_old_epoch,
            "attempts_without_start": self.attempts_without_start,
            "calls_without_start": self.calls_without_start,
            "calls_repeated": self.calls_repeated,
            "intents_called_too_often": self.intents_called_too_often,
        }

    @property
    def is_good(self) -> bool:
        """True if there are no faults and at least one accepted intent: a run without any proves nothing."""
        return self.intents_accepted > 0 and not any(self.faults.values())


def verdict(acknowledged: Iterable[str], evidence: Evidence, calls: Sequence[str]) -> Verdict:
    """Compute the verdict from the acknowledged ids, the database's rows and the gateway's calls.

    `calls`: the Idempotency-Key of every call, as the gateway recorded it.
    """
    accepted = set(acknowledged)
    over = {one.intent_id for one in evidence.intents if one.status != "pending" and one.marker_epoch is None}
    starts = Counter(_key(seen) for seen in evidence.seen if seen.kind == STARTED)
    by_key = Counter(calls)
    return Verdict(
        intents_accepted=len(accepted),
        intents_lost=len(accepted - over),
        starts_under_an_old_epoch=len(stale(evidence.seen, STARTED)),
        records_under_an_old_epoch=len(stale(evidence.seen, RECORDED)),
        attempts_without_start=_unstarted(evidence, starts),
        calls_without_start=sum(count for key, count in by_key.items() if key not in starts),
        calls_repeated=sum(count - 1 for count in by_key.values()),
        intents_called_too_often=_too_often(evidence, by_key),
        attempts_per_intent=dict(sorted(Counter(one.attempt_count for one in evidence.intents).items())),
        unknown_outcomes=sum(seen.error == OUTCOME_UNKNOWN for seen in evidence.seen if seen.kind == RECORDED),
        calls=len(calls),
    )


def stale(seen: Sequence[Seen], kind: str) -> list[Seen]:
    """Return the writes of this kind by an instance that was not the holder of the lease at that moment."""
    granted = {one.epoch: one for one in seen if one.kind == GRANTED}
    return [one for one in seen if one.kind == kind and not _in_office(one, granted)]


def _in_office(one: Seen, granted: dict[int, Seen]) -> bool:
    if one.kind == RECORDED and one.error == OUTCOME_UNKNOWN:
        # The marker is an earlier leader's; the lease at that moment is that of the leader that recorded the attempt.
        return one.lease_epoch is not None and one.epoch < one.lease_epoch and _in_order(one, one.lease_epoch, granted)
    is_own = (one.epoch, one.holder_id) == (one.lease_epoch, one.lease_holder)
    return is_own and _in_order(one, one.epoch, granted)


def _in_order(one: Seen, epoch: int, granted: dict[int, Seen]) -> bool:
    """Return whether `one` was logged after the grant of this epoch and before the next grant."""
    following = [grant.id for other, grant in granted.items() if other > epoch]
    return epoch in granted and granted[epoch].id < one.id < min(following, default=one.id + 1)


def _unstarted(evidence: Evidence, starts: Counter[str]) -> int:
    records = Counter(_key(seen) for seen in evidence.seen if seen.kind == RECORDED)
    keys = [f"{one.intent_id}/{one.attempt_number}" for one in evidence.attempts]
    wrong = sum(starts[key] != 1 or records[key] != 1 for key in keys)
    return wrong + len(starts.keys() - set(keys)) + len(records.keys() - set(keys))


def _too_often(evidence: Evidence, by_key: Counter[str]) -> int:
    made: Counter[str] = Counter()
    for key, count in by_key.items():
        made[key.rpartition("/")[0]] += count
    return sum(one.max_attempts is not None and made[one.intent_id] > one.max_attempts for one in evidence.intents)


def _key(seen: Seen) -> str:
    return f"{seen.intent_id}/{seen.attempt_number}"
