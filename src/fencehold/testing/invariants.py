"""The promises of the library as named invariants, judged from evidence; each says how often it was put to the test.

An invariant that nothing put to the test is neither held nor broken: `checked` is 0 and `held` is None. Rules that
`fencehold.testing.history` judges already are judged by that module here too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fencehold.testing import history
from fencehold.testing.evidence import Evidence, ItemChange, LeaseChange, StaleTry, Verb
from fencehold.testing.history import Believed, Rule, Wrote

PENDING, PROCESSING, COMPLETED, DEAD = "PENDING", "PROCESSING", "COMPLETED", "DEAD_LETTER"

Judge = Callable[[Evidence], tuple[int, Iterable[str]]]


@dataclass(frozen=True)
class Invariant:
    """A promise of the library, and the function that judges it.

    A run that never tested it shows nothing, and cannot pass.
    """

    name: str
    promise: str
    judge: Judge
    needs_lock: bool = False  # only where there are advisory locks


@dataclass(frozen=True)
class Finding:
    """The result of a run for one invariant: how often it was checked and broken.

    `first` is the first counter-example.
    """

    invariant: Invariant
    checked: int
    broken: int = 0
    first: str | None = None

    @property
    def held(self) -> bool | None:
        """Whether the invariant held; None if nothing put it to the test."""
        if self.broken:
            return False
        return True if self.checked else None

    @property
    def state(self) -> str:
        return {True: "held", False: "broken", None: "not checked"}[self.held]


def judge(evidence: Evidence) -> list[Finding]:
    """Judge all invariants and return one finding for each, in the order of `INVARIANTS`."""
    findings = []
    for invariant in INVARIANTS:
        checked, found = invariant.judge(evidence)
        examples = list(found)
        findings.append(Finding(invariant, checked, len(examples), examples[0] if examples else None))
    return findings


# Leaders


def _one_leader_per_epoch(evidence: Evidence) -> tuple[int, Iterable[str]]:
    holder_of: dict[tuple[str, int], str] = {}
    found = []
    told = [(grant.name, grant.epoch, grant.holder_id) for grant in evidence.grants]
    for name, epoch, holder in [*_granted(evidence), *told]:
        first = holder_of.setdefault((name, epoch), holder)
        if first != holder:
            found.append(f"{name}: epoch {epoch} was given to {first} and to {holder}")
    return len(holder_of), dict.fromkeys(found)


def _granted(evidence: Evidence) -> Iterator[tuple[str, int, str]]:
    for change in evidence.lease_changes:
        if _is_grant(change):
            yield change.name, change.epoch or 0, change.holder or ""


def _is_grant(change: LeaseChange) -> bool:
    return change.epoch is not None and (change.epoch, change.holder) != (change.was_epoch, change.was_holder)


def _epochs_only_rise(evidence: Evidence) -> tuple[int, Iterable[str]]:
    granted = list(_granted(evidence))
    late = _not_rising((name, epoch, holder, None) for name, epoch, holder in granted)
    fallen = [f"{name}: epoch {n} ({holder}) was granted after epoch {before}" for name, n, holder, before in late]
    told = (str(one) for one in history.check(evidence.grants) if one.rule is Rule.GRANTS_INCREASE)
    return len(granted) - len({name for name, _, _ in granted}), [*fallen, *told]


def _not_rising(grants: Iterable[tuple[str, int, str, int | None]]) -> Iterator[tuple[str, int, str, int]]:
    """Yield the grants whose number is not higher than the newest number before, for the same lease or item.

    A grant is a tuple: the lease or item, its number (epoch or token), to whom, and the number before it (None:
    unknown). A yielded tuple has in the last place the newest number before.
    """
    newest: dict[str, int | None] = {}
    for what, number, holder, known in grants:
        before = newest.get(what, known)
        if before is not None and number <= before:
            yield what, number, holder, before
        newest[what] = max(number, before or 0)


def _no_takeover_of_a_live_lease(evidence: Evidence) -> tuple[int, Iterable[str]]:
    takeovers = [
        change
        for change in evidence.lease_changes
        if _is_grant(change) and change.was_epoch is not None and change.name not in evidence.seized
    ]
    return len(takeovers), (
        f"{one.name}: {one.holder} was granted epoch {one.epoch} while {one.was_holder} held epoch {one.was_epoch}"
        for one in takeovers
        if one.was_live
    )


def _one_at_a_time(beliefs: Sequence[Believed]) -> tuple[int, Iterable[str]]:
    """Return how many intervals can be compared with another one of the same name, and texts about overlaps."""
    pairs = sum(count - 1 for count in Counter(belief.name for belief in beliefs).values())
    return pairs, (str(one) for one in history.check(beliefs) if one.rule is Rule.ONE_VALID_TERM)


def _only_the_holder_renews(evidence: Evidence) -> tuple[int, Iterable[str]]:
    checked, found = _stale(evidence, Verb.RENEW, Verb.RELEASE)
    revived = (
        f"{one.name}: epoch {one.epoch} of {one.holder} was renewed after it had ended"
        for one in evidence.lease_changes
        if one.epoch is not None and not _is_grant(one) and not one.was_live
    )
    return checked, [*found, *revived]


def _stale(evidence: Evidence, *verbs: Verb) -> tuple[int, list[str]]:
    tries = [one for one in evidence.stale_tries if one.verb in verbs]
    return len(tries), [_sentence(one) for one in tries if one.was_accepted]


def _sentence(one: StaleTry) -> str:
    return f"{one.what}: {one.verb.value} of {one.holder_id} under {one.token} was accepted, though {one.seen}"


# Fenced writes


def _no_stale_fenced_write(evidence: Evidence) -> tuple[int, Iterable[str]]:
    checked, found = _stale(evidence, Verb.WRITE)
    late = (
        f"{one.name}: a write of epoch {one.epoch} ({one.holder_id}) was committed when the lease was at epoch "
        f"{one.epoch_seen}"
        for one in evidence.writes
        if one.epoch_seen is not None and one.epoch < one.epoch_seen
    )
    wrote = [Wrote(one.name, one.holder_id, one.epoch, one.commit_order) for one in evidence.writes]
    order = (str(one) for one in history.check(wrote) if one.rule is Rule.WRITES_IN_ORDER)
    return checked, [*late, *order, *found]


def _fenced_counter_exact(evidence: Evidence) -> tuple[int, Iterable[str]]:
    found = []
    orders: defaultdict[str, list[int]] = defaultdict(list)
    for write in evidence.writes:
        orders[write.name].append(write.commit_order)
    for name, count in sorted(evidence.counters.items()):
        if sorted(orders[name]) != list(range(1, count + 1)):
            found.append(f"{name}: the counter stands at {count}, and {len(orders[name])} writes are in the log")
    there = {write.write_id for write in evidence.writes}
    for told in evidence.told_writes:
        if told.was_accepted is True and told.write_id not in there:
            found.append(f"{told.name}: a write of epoch {told.epoch} was accepted and is gone")
        if told.was_accepted is False and told.write_id in there:
            found.append(f"{told.name}: a write of epoch {told.epoch} was refused and is there")
    return len(evidence.writes), found


# Events


def _no_event_lost(evidence: Evidence) -> tuple[int, Iterable[str]]:
    gone = (
        f"event {one} was added and is not there" for one in evidence.events_added if one not in evidence.events_there
    )
    dead = (f"event {one} was given up" for one, status in evidence.events_there.items() if status == DEAD)
    return len(evidence.events_added), [*gone, *dead]


def _no_event_completed_twice(evidence: Evidence) -> tuple[int, Iterable[str]]:
    done: dict[str, str | None] = {}
    found = []
    for change in evidence.event_changes:
        if change.tracking_id in done and (change.was_status, change.status) != (COMPLETED, None):
            before = done[change.tracking_id]
            found.append(
                f"event {change.tracking_id} was completed under {before} and then became {change.status} under "
                f"{change.token}"
            )
        elif change.status == COMPLETED:
            done[change.tracking_id] = change.token
    return len(done), found


def _one_claim_per_event(evidence: Evidence) -> tuple[int, Iterable[str]]:
    claims = [one for one in evidence.event_changes if one.status == PROCESSING and one.token != one.was_token]
    taken = (
        f"event {one.tracking_id} was claimed as {one.token} while {one.was_token} held it"
        for one in claims
        if one.was_status == PROCESSING
    )
    freed = (
        f"event {one.tracking_id} was taken from {one.was_token} before its claim had ended"
        for one in evidence.event_changes
        if one.was_status == PROCESSING and one.status in (PENDING, DEAD) and one.is_counted and one.was_live
        # A worker that gives back what it did not begin counts no try.
    )
    twice = (f"the token {token} was given out {n} times" for token, n in _tokens(evidence).items() if n > 1)
    return len(claims), [*taken, *freed, *twice]


def _tokens(evidence: Evidence) -> Counter[str]:
    """Return how often each event was claimed under the same token; events that are claimed together share a token."""
    claimed = (
        f"{one.token} of event {one.tracking_id}"
        for one in evidence.event_changes
        if one.status == PROCESSING and one.was_status != PROCESSING
    )
    return Counter(claimed)


# Items


def _item_grants(evidence: Evidence) -> list[ItemChange]:
    return [
        one
        for one in evidence.item_changes
        if one.holder is not None and (one.holder, one.token) != (one.was_holder, one.was_token)
    ]


def _one_holder_per_item(evidence: Evidence) -> tuple[int, Iterable[str]]:
    grants = _item_grants(evidence)
    return len(grants), (
        f"{one.item_id}: {one.holder} was given token {one.token} while {one.was_holder} held it under {one.was_token}"
        for one in grants
        if one.was_live and one.was_holder != one.holder
    )


def _item_tokens_only_rise(evidence: Evidence) -> tuple[int, Iterable[str]]:
    grants = _item_grants(evidence)
    late = _not_rising((one.item_id, one.token, one.holder or "", one.was_token) for one in grants)
    return len(grants), (f"{what}: token {n} ({who}) was given after token {before}" for what, n, who, before in late)


def _no_stale_item_save(evidence: Evidence) -> tuple[int, Iterable[str]]:
    checked, found = _stale(evidence, Verb.SAVE)
    written = (
        f"{one.item_id}: saved under token {one.written_token} while the item was leased under token {one.token}"
        for one in evidence.item_changes
        if one.is_save and one.written_token is not None and one.written_token != one.token
    )
    return checked, [*written, *found]


INVARIANTS: tuple[Invariant, ...] = (
    Invariant("one-leader-per-epoch", "an epoch of a lease has one holder", _one_leader_per_epoch),
    Invariant("epochs-only-rise", "each grant of a lease has a higher epoch than the one before", _epochs_only_rise),
    Invariant(
        "no-takeover-of-a-live-lease", "nobody is granted a lease that has not ended", _no_takeover_of_a_live_lease
    ),
    Invariant(
        "one-valid-leader",
        "at most one process at a time believes that it leads",
        lambda evidence: _one_at_a_time(evidence.beliefs),
    ),
    Invariant("only-the-holder-renews", "only its present holder renews or releases a lease", _only_the_holder_renews),
    Invariant(
        "no-stale-fenced-write",
        "no fenced write of an older epoch is committed once a newer one began",
        _no_stale_fenced_write,
    ),
    Invariant(
        "fenced-counter-exact",
        "accepted fenced writes are all there, refused ones are not, and none counts twice",
        _fenced_counter_exact,
    ),
    Invariant("no-event-lost", "every event that was added is there, and none was given up", _no_event_lost),
    Invariant("no-event-completed-twice", "an event is completed once, and stays so", _no_event_completed_twice),
    Invariant("one-claim-per-event", "an event has one claim at a time, each with a new token", _one_claim_per_event),
    Invariant(
        "no-stale-completion",
        "a claim that has ended completes nothing",
        lambda evidence: _stale(evidence, Verb.COMPLETE),
    ),
    Invariant("one-holder-per-item", "nobody is given an item that another holds", _one_holder_per_item),
    Invariant("item-tokens-only-rise", "each lease of an item has a higher token", _item_tokens_only_rise),
    Invariant("no-stale-item-save", "a save under an item's lease that has ended is refused", _no_stale_item_save),
    Invariant(
        "one-advisory-lock-holder",
        "at most one process at a time believes that it leads by advisory lock",
        lambda evidence: _one_at_a_time(evidence.lock_beliefs),
        needs_lock=True,
    ),
)
