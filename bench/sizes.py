"""How much of everything a run measures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class OutboxSizes:
    """`drain_s` is how long a drain is meant to take; the number of events follows from each system's rough rate."""

    with_every_peer: bool = True
    rounds: int = 5
    drain_s: float = 2.0
    added: int = 50_000
    probes: int = 400
    history_finished: int = 1_000_000
    history_pending: int = 10_000
    snapshot_s: float = 120.0
    idle_s: float = 40.0
    memory_events: int = 1_000_000


OUTBOX_QUICK = OutboxSizes(
    with_every_peer=False, rounds=2, drain_s=1.2, added=20_000, probes=120, history_finished=200_000, snapshot_s=20.0,
    idle_s=12.0, memory_events=150_000,
)  # fmt: skip


@dataclass(frozen=True)
class ItemSizes:
    """`states` of 480 items each are leased in a drain."""

    rounds: int = 5
    history_rounds: int = 7
    states: int = 80
    finished: int = 1_000_000


ITEMS_QUICK = ItemSizes(rounds=3, history_rounds=3, states=30, finished=100_000)


@dataclass(frozen=True)
class SubmissionSizes:
    """`load_s` is how long clients submit in each round of the intake; probes come `probe_every_s` apart on average."""

    rounds: int = 7
    load_s: float = 5.0
    pending: int = 1_000_000
    refresh_s: float = 15.0
    probes: int = 500
    probe_every_s: float = 0.1
    kills: int = 8
    stops: int = 10


SUBMISSION_QUICK = SubmissionSizes(
    rounds=3, load_s=3.0, pending=100_000, refresh_s=5.0, probes=150, kills=3, stops=4
)  # fmt: skip


@dataclass(frozen=True)
class SqliteSizes:
    """`watch_s` is how long the lock is watched in each round."""

    rounds: int = 3
    watch_s: float = 8.0
    intents_per_s: float = 30.0
    events_per_s: float = 50.0


SQLITE_QUICK = SqliteSizes(rounds=2, watch_s=4.0)


@dataclass(frozen=True)
class Sizes:
    handovers: int = 200
    polls: int = 20
    takeovers: int = 15
    idle_s: float = 60.0
    rate_rounds: int = 15
    rate_cycles: int = 100
    leases: int = 1000
    renewal_rounds: int = 3
    outbox: OutboxSizes = field(default_factory=OutboxSizes)
    items: ItemSizes = field(default_factory=ItemSizes)
    submission: SubmissionSizes = field(default_factory=SubmissionSizes)
    sqlite: SqliteSizes = field(default_factory=SqliteSizes)


QUICK = Sizes(
    handovers=40, polls=5, takeovers=4, idle_s=30.0, rate_rounds=5, rate_cycles=50, leases=1000, renewal_rounds=1,
    outbox=OUTBOX_QUICK, items=ITEMS_QUICK, submission=SUBMISSION_QUICK, sqlite=SQLITE_QUICK,
)  # fmt: skip


def sizes(*, quick: bool, rounds: int | None) -> Sizes:
    """`rounds` replaces the number of hand-overs, of takeovers, of rate rounds and of drains."""
    chosen = QUICK if quick else Sizes()
    if rounds is None:
        return chosen
    outbox = replace(chosen.outbox, rounds=rounds)
    items = replace(chosen.items, rounds=rounds, history_rounds=rounds)
    submission = replace(chosen.submission, rounds=rounds, kills=rounds, stops=rounds)
    return replace(
        chosen, handovers=rounds, takeovers=rounds, rate_rounds=rounds, outbox=outbox, items=items,
        submission=submission, sqlite=replace(chosen.sqlite, rounds=rounds),
    )  # fmt: skip
