"""Types of the keyword arguments that several calls share, so that an editor knows them where they are passed on.

Each class has the names and types of one call's arguments; a test compares the class with the call.
"""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import TypedDict

from fencehold.model.durable import Durability, WithoutStandby
from fencehold.model.durations import Duration
from fencehold.model.election.retry import RetryStrategy
from fencehold.model.election.settings import OnError
from fencehold.model.json_types import JsonMapping
from fencehold.model.outbox.rules import Status
from fencehold.ports.facts import FactSink


class ConnectOptions(TypedDict, total=False):
    """The options of `fencehold.connect`."""

    table: str
    facts: FactSink | None
    open_timeout: Duration | None
    durable: Durability | None
    without_standby: WithoutStandby | None


class SeekOptions(TypedDict, total=False):
    """The options of `store.leader`, except `lease`."""

    renew_every: Duration | None
    acquire_every: Duration | None
    margin: Duration | None
    stall_limit: Duration | None
    holder_id: str | None
    on_error: OnError
    release_on_stop: bool
    retry_strategy: RetryStrategy | None


class LeaderOptions(SeekOptions, total=False):
    """The options of `store.leader`."""

    lease: Duration


class SyncJobOptions(LeaderOptions, total=False):
    """The options of `store.run_as_leader` in `fencehold.sync`."""

    stop: threading.Event | None
    backoff: RetryStrategy | None


class OutboxOptions(TypedDict, total=False):
    """The options of `store.outbox`."""

    lease: Duration
    heartbeat_every: Duration | None
    max_retries: int
    reap_every: Duration | None
    retry_base: Duration
    retry_cap: Duration
    payload_bytes_max: int
    event_types: Collection[str] | None
    ordered: bool


class AddOptions(TypedDict, total=False):
    """The options of `outbox.add`, except `tx`."""

    aggregate_id: str | None
    aggregate_type: str | None
    tracking_id: str | uuid.UUID | None
    not_before: dt.datetime | Duration | None
    priority: int
    metadata: JsonMapping | None


class RedriveOptions(TypedDict, total=False):
    """The options of `outbox.redrive`."""

    per_minute: float
    dry_run: bool


class RetryOptions(TypedDict, total=False):
    """The options of `outbox.retry`."""

    dry_run: bool


class PurgeOptions(TypedDict, total=False):
    """The options of `outbox.purge`."""

    statuses: Sequence[Status]
    dry_run: bool
    on_progress: Callable[[int], None] | None


class WorkerOptions(TypedDict, total=False):
    """The options of `outbox.worker`, except `batch_size`, which decides the type of the handler."""

    concurrency: int
    worker_id: str | None
    poll_every: Duration
    max_processing: Duration | None
    shutdown_timeout: Duration | None
    saturated: Callable[[], bool] | None
    reaper: bool
    give_up_after: Duration | None


class ItemsOptions(TypedDict, total=False):
    """The options of `store.items`."""

    lease: Duration
    holder_id: str | None
    heartbeat_every: Duration | None
    stall_limit: Duration | None
    document_bytes_max: int


class ProcessOptions(TypedDict, total=False):
    """The options of `items.process`."""

    concurrency: int
    batch: int
    poll_every: Duration
    max_processing: Duration | None
    shutdown_timeout: Duration | None
