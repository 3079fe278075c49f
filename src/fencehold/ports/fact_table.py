"""Every fact of the library: its name, its level in the log, when it is reported, and its fields.

A field that does not apply in some case is None there. How facts are counted is in telemetry/metrics.py.
"""

from __future__ import annotations

from logging import DEBUG, ERROR, INFO, WARNING
from typing import TypeAlias

from fencehold.ports.facts import LEVELS, Facts, FactSink, at

__all__ = ["LEVELS"]

Text: TypeAlias = str | None
Int: TypeAlias = int | None
Float: TypeAlias = float | None
Bool: TypeAlias = bool | None


WHO_WAITS = ("store", "lease_name", "holder_id", "following", "outbox", "worker_id", "kind", "state")


class StoreFacts(Facts):
    """Facts about a store as a whole."""

    @at(ERROR)
    def internal_error(self, *, error: str) -> None:
        """A part of this library ended by an error that it does not expect: a defect of the library."""

    @at(ERROR)
    def callback_failed(
        self, *, error: str, callback: Text = None, outbox: Text = None, worker_id: Text = None
    ) -> None:
        """A callback of the program raised, or took too long."""

    @at(WARNING)
    def schema_waiting(self, *, detail: str, outbox: Text = None) -> None:
        """`init` waits for a lock on a table that is in use."""

    @at(INFO)
    def tables_made(self, *, tables: str, steps: list[str]) -> None:
        """Tables were made at first use."""

    @at(WARNING)
    def store_not_durable(self, *, detail: str, hint: str) -> None:
        """The server is set so that a crash can lose a lease that it has granted."""

    @at(WARNING)
    def store_not_replicated(self, *, detail: str, hint: str) -> None:
        """The store was opened to wait for a standby, and the server waits for none."""

    @at(WARNING)
    def commit_not_replicated(self, *, error: str) -> None:
        """A caller's fenced transaction is committed on this server, but perhaps not on a standby."""

    @at(WARNING)
    def timeline_unread(self, *, detail: str, hint: str) -> None:
        """The server does not say on which timeline it is, which keeps epochs apart after a failover."""

    @at(WARNING)
    def file_system_doubtful(self, *, detail: str) -> None:
        """The SQLite file is on a file system whose locks may not work."""

    @at(WARNING)
    def file_replaced(self, *, detail: str) -> None:
        """Another file is at the path of the SQLite file; it is used from now on."""

    @at(DEBUG)
    def request_charged(self, *, verb: str, request_units: float) -> None:
        """What a request to Cosmos DB cost."""

    @at(DEBUG)
    def items_leased(self, *, kind: str, holder_id: str, leased: int) -> None:
        """Items were leased to this holder."""

    @at(INFO)
    def item_lease_broken(self, *, kind: str, id: str, holder_id: Text, token: int, by: str) -> None:
        """An operator ended the lease on an item."""

    @at(INFO)
    def metrics_served(self, *, url: str) -> None:
        """Metrics and health are served at this URL."""

    @at(WARNING)
    def shutdown_cut_off(self, *, limit_s: Float) -> None:
        """A leader's or lock's shutdown did not end within its timeout; the lease may have to lapse."""


class OutageFacts(Facts):
    """Facts about waiting for a store; the other fields say who waits."""

    @at(WARNING, may_be_about=WHO_WAITS)
    def store_unreachable(self, *, code: str, error: str, hint: str, waited_s: float, tries: int) -> None:
        """The store does not answer; reported at the first failure of each kind and then once a minute."""

    @at(INFO, may_be_about=WHO_WAITS)
    def store_answers(self, *, waited_s: float) -> None:
        """The store answers again."""


class LeaseFacts(Facts):
    """Facts about one leader's lease; where `lease_epoch` is None, about a candidate, which does not lead."""

    def __init__(
        self, sink: FactSink, lease_name: Text = None, holder_id: Text = None, lease_epoch: Int = None,
        expires_at: Text = None,
    ) -> None:  # fmt: skip
        super().__init__(
            sink, lease_name=lease_name, holder_id=holder_id, lease_epoch=lease_epoch, expires_at=expires_at
        )

    @at(DEBUG)
    def state_change(self, *, old: str, new: str, why: Text = None) -> None:
        """A candidate has changed its state."""

    @at(INFO)
    def leader_acquired(self) -> None:
        """This process leads."""

    @at(DEBUG)
    def leader_renewed(self, *, failures: Int = None, failing_s: Float = None, not_logged: Int = None) -> None:
        """The lease was renewed, after so many failures in a row."""

    @at(WARNING)
    def leader_renew_failed(
        self, *, sql_error: str, failures: int, not_logged: Int = None, is_repeat: Bool = None
    ) -> None:
        """A renewal got no answer; it is repeated until the deadline."""

    @at(WARNING)
    def leader_lost(
        self, *, reason: str, failures: Int = None, failing_s: Float = None, not_logged: Int = None
    ) -> None:
        """This process leads no more, although it wanted to."""

    @at(DEBUG)
    def leader_releasing(
        self, *, reason: str, failures: Int = None, failing_s: Float = None, not_logged: Int = None
    ) -> None:
        """This process gives the lease back; `leader_released` follows when the store confirms that."""

    @at(INFO)
    def leader_released(self, *, reason: Text) -> None:
        """The lease was given back; another may take it at once."""

    @at(INFO)
    def leader_left_to_lapse(self, *, why: str) -> None:
        """The lease ended here and was not given back, as the program chose."""

    @at(WARNING)
    def leader_release_failed(self, *, reason: str, sql_error: Text = None) -> None:
        """The store did not confirm that the lease was given back."""

    @at(DEBUG)
    def leader_acquire_failed(
        self, *, lease_epoch: Int = None, held_by: Text = None, expires_at: Text = None, sql_error: Text = None,
        is_repeat: Bool = None,
    ) -> None:  # fmt: skip
        """An attempt was refused, or got no answer."""

    @at(WARNING)
    def leader_stalled(self, *, silent_s: float) -> None:
        """The program's event loop has been blocked beyond the stall limit: the lease is left to lapse."""

    @at(WARNING)
    def lease_row_locked(self, *, locked_s: float, tries: int, why: str) -> None:
        """Another session keeps the row of the lease locked."""

    @at(ERROR)
    def fence_not_awaited(self, *, hint: str) -> None:
        """`term.fence()` of an async connection was not awaited: nothing was fenced."""

    @at(INFO)
    def leader_job_done(self) -> None:
        """The job of run_as_leader has returned."""

    @at(ERROR)
    def leader_job_failed(self, *, error: str, failures: int, retry_in_s: Float, traceback: Text) -> None:
        """The job of run_as_leader raised; it is tried again after a pause."""

    @at(WARNING)
    def leader_job_not_started(self, *, error: str, retry_in_s: float) -> None:
        """The leader of run_as_leader could not be started again; that is retried."""

    @at(ERROR)
    def leader_job_gave_up(self, *, error: str) -> None:
        """run_as_leader ends with this error."""


class LockFacts(LeaseFacts):
    """Facts about one lock that a database session holds; the lock's own logger adds the name or keys of the lock."""

    @at(INFO)
    def lock_acquired(self, *, attempt: int, epoch: Int) -> None:
        """This process holds the lock."""

    @at(WARNING)
    def lock_lost(self, *, why: str) -> None:
        """This process does not hold the lock any more, or cannot prove that it does."""

    @at(INFO)
    def reconnecting(self, *, why: str) -> None:
        """The connection broke; within the grace period the lock may be regained."""

    @at(INFO)
    def leadership_recovered(self, *, epoch: Int) -> None:
        """The lock was regained within the grace period."""

    @at(WARNING)
    def health_check_failed(self, *, error: Exception) -> None:
        """A probe could not show that the session holds the lock."""

    @at(ERROR)
    def gave_up(self, *, error: Exception) -> None:
        """The lock is not tried for any more, because no retry can help."""

    @at(INFO)
    def release_cut_off(self, *, limit_s: float) -> None:
        """The release got no answer: the connection was dropped instead."""


class OutboxFacts(OutageFacts):
    """Facts about one outbox."""

    @at(DEBUG)
    def reaper_run(self, *, recovered: int, dead: int, stale_s: list[float], took_s: float) -> None:
        """The reaper has made a run and recovered the events whose lease had lapsed."""

    @at(INFO)
    def event_recovered(
        self,
        *,
        id: int,
        tracking_id: str,
        event_type: str,
        status: str,
        retry_count: int,
        stale_s: float,
        lock_token: str,
    ) -> None:
        """The reaper has recovered this event: its worker had died, or had lost its lease."""

    @at(DEBUG)
    def reaper_failed(self, *, sql_error: str) -> None:
        """A run of the reaper got no answer from the store."""

    @at(INFO)
    def reaper_started(self, *, every_s: float) -> None:
        """The command `fencehold reaper` runs."""

    @at(INFO)
    def reaper_stopped(self) -> None:
        """The command `fencehold reaper` ends."""

    @at(DEBUG)
    def outbox_stats(
        self,
        *,
        pending: int,
        processing: int,
        failed: int,
        dead_letter: int,
        oldest_pending_age_s: float,
        looked_at: float,
    ) -> None:
        """The events of the outbox were counted; the fields are the counts."""

    @at(DEBUG)
    def outbox_unseen(self) -> None:
        """The counts of the outbox are not known any more: they could not be read, or are not read any more."""

    @at(INFO)
    def events_redriven(self, *, event_type: str, count: int, root_cause: str) -> None:
        """An operator made failed events or dead letters pending again."""

    @at(INFO)
    def events_purged(self, *, count: int) -> None:
        """An operator deleted finished events."""


class WorkerFacts(OutageFacts):
    """Facts about one worker of an outbox."""

    @at(INFO)
    def worker_started(self, *, concurrency: int) -> None:
        """The worker claims events from now on."""

    @at(INFO)
    def worker_stopping(self, *, in_flight: int) -> None:
        """The worker claims no more events, and waits for the handlers that run."""

    @at(INFO)
    def worker_stopped(self) -> None:
        """The worker has ended."""

    @at(ERROR)
    def worker_died(self, *, error: str) -> None:
        """The worker ended by an error."""

    @at(ERROR)
    def worker_gave_up(self, *, error: str) -> None:
        """The worker cannot handle anything any more, and ends."""

    @at(INFO)
    def worker_paused(self) -> None:
        """The worker claims nothing until it is resumed."""

    @at(INFO)
    def worker_resumed(self) -> None:
        """The worker claims again."""

    @at(WARNING)
    def worker_saturated(self) -> None:
        """The worker claims nothing, because its hook `saturated` says that what the worker feeds is full."""

    @at(WARNING)
    def worker_hook_failed(self, *, error: str) -> None:
        """The hook `saturated` raised an error; the worker goes on as if it had said "not full"."""

    @at(DEBUG)
    def worker_store_failed(self, *, sql_error: str) -> None:
        """One round trip of the worker, which completes and claims events, got no answer from the store."""

    @at(DEBUG)
    def worker_heartbeat(self, *, sent: int, refused: int) -> None:
        """The leases on events of this worker were renewed, or refused."""

    @at(ERROR)
    def worker_heartbeat_failed(self, *, held: int, sql_error: str) -> None:
        """A renewal of the leases on events got no answer: this worker has lost the events."""

    @at(DEBUG)
    def worker_watched(self, *, running: int, hung: int, silent_s: float, oldest_s: float) -> None:
        """How many handlers run and how many seem to hang, and for how long the event loop has been blocked."""

    @at(WARNING)
    def worker_loop_blocked(
        self, *, silent_s: float, handler: Text, age_s: Float = None, in_hand: Text = None, where: Text
    ) -> None:
        """The worker's event loop is blocked."""

    @at(WARNING)
    def worker_stuck(self, *, places: int, hung: int, handler: str, age_s: float) -> None:
        """The worker is stuck: as many handlers as it may run at once all seem to hang."""

    @at(DEBUG)
    def events_claimed(self, *, claimed: int) -> None:
        """The worker has claimed events."""

    @at(DEBUG)
    def events_completed(self, *, completed: int, refused: int, latencies_s: list[float] | None) -> None:
        """The store has recorded events as completed, and refused others."""

    @at(INFO)
    def events_handed_back(self, *, count: int) -> None:
        """A stopping worker has given back events whose handlers it had cancelled; no try is counted."""


class EventFacts(Facts):
    """Facts about one event that a worker has claimed."""

    @at(WARNING)
    def event_failed(self, *, attempt: int, status: str, error: Text = None, traceback: Text = None) -> None:
        """A try has failed; the status says whether there will be another."""

    @at(WARNING)
    def event_lost(self, *, reason: str, error: Text = None, traceback: Text = None) -> None:
        """The store did not record the result of a handler, because the event was no longer this worker's."""

    @at(WARNING)
    def event_aborted(self, *, reason: str) -> None:
        """The handler was cancelled because it took longer than it may."""

    @at(WARNING)
    def handler_slow(self, *, handler: str, age_s: float) -> None:
        """The handler has run for more than half of the time it may take."""

    @at(WARNING)
    def handler_hung(self, *, handler: str, age_s: float, reason: str, place: str) -> None:
        """The handler runs on although its lease is lost."""

    @at(INFO)
    def handler_ended_late(self, *, handler: str, age_s: float, error: Text = None, traceback: Text = None) -> None:
        """A handler that had lost its lease has ended at last."""


class ItemFacts(Facts):
    """Facts about the lease on one item."""

    @at(WARNING)
    def item_lost(self, *, reason: str) -> None:
        """The lease is over, although this process wanted it."""

    @at(WARNING)
    def item_stalled(self, *, silent_s: float) -> None:
        """The program's event loop has been blocked beyond the stall limit: the lease is left to lapse."""

    @at(WARNING)
    def item_break_failed(self, *, sql_error: str) -> None:
        """The lease could not be given back; it lapses."""


class ItemKindFacts(Facts):
    """Facts about the items of one kind that this process keeps."""

    @at(DEBUG)
    def item_heartbeat(self, *, sent: int, refused: int) -> None:
        """The leases on items of this kind were renewed, or refused."""

    @at(ERROR)
    def item_heartbeat_failed(self, *, held: int, sql_error: str) -> None:
        """A renewal got no answer; it is repeated until the deadline."""


class ProcessorFacts(OutageFacts):
    """Facts about one processor: what handles the items of one kind that are in one state."""

    @at(INFO)
    def processor_started(self, *, concurrency: int) -> None:
        """The processor takes items from now on."""

    @at(INFO)
    def processor_stopping(self, *, in_hand: int) -> None:
        """The processor takes no more items, and waits for the handlers that run."""

    @at(INFO)
    def processor_stopped(self) -> None:
        """The processor has ended."""

    @at(ERROR)
    def processor_died(self, *, error: str) -> None:
        """The processor ended by an error."""

    @at(DEBUG)
    def processor_store_failed(self, *, sql_error: str) -> None:
        """A search of the processor for items got no answer from the store."""

    @at(DEBUG)
    def item_processed(self, *, id: str, token: int, now: str, moved: bool) -> None:
        """The handler has returned; `now` is the item's state."""

    @at(WARNING)
    def item_failed(self, *, id: str, token: int, error: str, rest_s: float, traceback: Text) -> None:
        """The handler raised an error; this processor does not take the item again for `rest_s` seconds."""

    @at(INFO)
    def item_called_off(self, *, id: str, token: int) -> None:
        """The handler was cancelled because the processor stops."""

    @at(WARNING)
    def item_unchanged(self, *, id: str, token: int, calls: int, detail: str) -> None:
        """The handler returned without saving anything."""
