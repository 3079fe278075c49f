"""The settings of an outbox and of its workers. They are checked before any I/O; one error names every problem."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, replace

from fencehold.model.durations import Duration
from fencehold.model.settings import GOOD_START, HEARTBEAT_PART, Check, HeartbeatSettings

REAP_EVERY_S = 10.0
RETRY_S_MIN = 0.1
CONCURRENCY_MAX = 10_000
PAYLOAD_BYTES_MAX = 1024 * 1024
RETRIES_MAX = 32_000
LOOP_SILENT_S = 5.0
STUCK_AFTER_S = 300.0
DEFAULT_OUTBOX = "outbox"
UNSURE = "Leave what you are unsure of to its default."


def outbox_flag(name: str) -> str:
    """Return the option that a command needs to address this outbox; empty for the default outbox.

    For advice in messages.
    """
    return "" if name == DEFAULT_OUTBOX else f" --outbox {name}"


@dataclass(frozen=True)
class Backoff:
    """The delay before an event is tried again: base * 2^(attempt - 1), plus up to 10 % at random.

    It is never above the cap and never below 100 ms.
    """

    base_s: float = 1.0
    cap_s: float = 30.0
    jitter: float = 0.1

    def delay_s(self, attempt: int, rng: random.Random) -> float:
        doubled_s = self.base_s * 2.0 ** min(max(attempt - 1, 0), 60)
        return max(RETRY_S_MIN, min(self.cap_s, doubled_s * (1 + rng.uniform(0.0, self.jitter))))


@dataclass(frozen=True)
class OutboxSettings(HeartbeatSettings):
    reap_every_s: float
    max_retries: int
    backoff: Backoff
    payload_bytes_max: int
    event_types: frozenset[str] | None
    in_order: bool


def outbox_settings(
    *,
    lease: Duration = 30,
    heartbeat_every: Duration | None = None,
    reap_every: Duration | None = None,
    max_retries: int = 5,
    retry_base: Duration = 1,
    retry_cap: Duration = 30,
    payload_bytes_max: int = PAYLOAD_BYTES_MAX,
    event_types: Collection[str] | None = None,
    in_order: bool = False,
) -> OutboxSettings:
    """Return the settings with defaults filled in. Raises one ConfigurationError that names every problem."""
    check = Check("Outbox")
    lease_s = check.seconds(lease, "lease", 30.0)
    heartbeat_s = check.seconds(heartbeat_every, "heartbeat_every", lease_s * HEARTBEAT_PART)
    reap_s = check.seconds(reap_every, "reap_every", min(REAP_EVERY_S, lease_s / 3))
    base_s, cap_s = check.seconds(retry_base, "retry_base", 1.0), check.seconds(retry_cap, "retry_cap", 30.0)
    check.heartbeat(lease_s, heartbeat_s)
    check.that(reap_s < lease_s, f"reap_every ({reap_s:g} s) must be below lease ({lease_s:g} s)")
    check.that(base_s <= cap_s, f"retry_base ({base_s:g} s) must not be above retry_cap ({cap_s:g} s)")
    of_lease = check.is_wrong
    check.count(max_retries, "max_retries", 1, RETRIES_MAX)
    check.count(payload_bytes_max, "payload_bytes_max", 1, 1024**3)
    check.that(not isinstance(event_types, str), "event_types is one text; it must be a list of them")
    check.done(GOOD_START.format(30) if of_lease else UNSURE)
    types = None if event_types is None else frozenset(event_types)
    return OutboxSettings(
        lease_s, heartbeat_s, reap_s, max_retries, Backoff(base_s, cap_s), payload_bytes_max, types, in_order
    )


@dataclass(frozen=True)
class WorkerSettings:
    """The checked settings of one worker.

    `max_processing_given_s` and `shutdown_given_s` are what the program set; if they are None, the values are computed
    from the lease.
    """

    concurrency: int
    poll_every_s: float
    batch_size: int | None
    lease_s: float
    max_processing_given_s: float | None = None
    shutdown_given_s: float | None = None
    give_up_after_s: float | None = None

    @property
    def slow_after_s(self) -> float:
        """Return the seconds after which the worker reports a running handler as slow."""
        return self.max_processing_s / 2

    @property
    def stuck_after_s(self) -> float:
        """Return the seconds after which the worker reports that it is stuck.

        It is stuck when as many handlers as it may run at once have all run for longer than that.
        """
        return min(STUCK_AFTER_S, self.slow_after_s)

    @property
    def loop_silent_s(self) -> float:
        """Return the seconds after which the worker reports that the event loop is blocked."""
        return min(LOOP_SILENT_S, self.lease_s / 3)

    @property
    def max_processing_s(self) -> float:
        return 3 * self.lease_s if self.max_processing_given_s is None else self.max_processing_given_s

    @property
    def shutdown_timeout_s(self) -> float:
        """Return how long a stop may wait for handlers.

        It is never above the lease, because an event whose lease has lapsed can no longer be completed.
        """
        return self.lease_s if self.shutdown_given_s is None else min(self.shutdown_given_s, self.lease_s)

    def with_lease(self, lease_s: float) -> WorkerSettings:
        return self if lease_s == self.lease_s else replace(self, lease_s=lease_s)


def worker_settings(
    lease_s: float,
    *,
    concurrency: int = 10,
    poll_every: Duration = 1,
    max_processing: Duration | None = None,
    shutdown_timeout: Duration | None = None,
    batch_size: int | None = None,
    give_up_after: Duration | None = None,
) -> WorkerSettings:
    """Return the settings of one worker, checked against the lease of its outbox.

    Raises one ConfigurationError that names every problem.
    """
    check = Check("Worker")
    poll_s = check.seconds(poll_every, "poll_every", 1.0)
    processing_s = None if max_processing is None else check.seconds(max_processing, "max_processing", 3 * lease_s)
    shutdown_s = None if shutdown_timeout is None else check.seconds(shutdown_timeout, "shutdown_timeout", lease_s)
    give_up_s = None if give_up_after is None else check.seconds(give_up_after, "give_up_after", lease_s)
    check.count(concurrency, "concurrency", 1, CONCURRENCY_MAX)
    if batch_size is not None:
        check.count(batch_size, "batch_size", 1, CONCURRENCY_MAX)
        check.at_most(batch_size, "batch_size", concurrency, "concurrency, which counts its events too")
    if shutdown_s is not None:
        check.that(
            shutdown_s <= lease_s, f"shutdown_timeout ({shutdown_s:g} s) must not be above the lease ({lease_s:g} s)"
        )
    check.done(UNSURE)
    return WorkerSettings(concurrency, poll_s, batch_size, lease_s, processing_s, shutdown_s, give_up_s)
