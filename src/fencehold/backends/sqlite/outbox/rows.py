"""Turns values into parameters of event statements as SQLite reads them, and rows into events."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

from fencehold.backends.sqlite.leases import modifier
from fencehold.backends.sqlite.times import nearest, whole
from fencehold.model.outbox.new_events import NewEvent
from fencehold.model.outbox.rules import Status, is_suspect
from fencehold.ports.events import Claim, ClaimAsk, ClaimKey, EventRow, Failure, Filter, Recovered, Stats

Row = tuple[Any, ...]
Params = dict[str, Any]

_SUB_MILLISECOND = dt.timedelta(microseconds=999)
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def add_params(event: NewEvent) -> Params:
    return {
        "tracking_id": event.tracking_id,
        "event_type": event.event_type,
        "payload": event.payload,
        "max_retries": event.max_retries,
        "aggregate_id": event.aggregate_id,
        "aggregate_type": event.aggregate_type,
        "metadata": event.metadata,
        "not_before": event.not_before and moment(event.not_before),
        "delay": modifier(event.delay_s),
        "priority": event.priority,
    }


def moment(at: dt.datetime) -> str:
    """Return the time as text in the form of the column, rounded up to milliseconds.

    Rounded up, so that an event is never due before the time that was asked for.
    """
    return (at.astimezone(dt.UTC) + _SUB_MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ask_params(ask: ClaimAsk) -> Params:
    types = None if ask.event_types is None else _json(ask.event_types)
    return {
        "limit": ask.limit, "token": ask.token, "lease": modifier(ask.lease_s), "types": types,
        "isolated": ask.suspects_max is not None, "suspects": ask.suspects_max or 0,
    }  # fmt: skip


def keys_param(keys: Sequence[ClaimKey]) -> str:
    return _json([(key.id, key.token) for key in keys])


def ids_param(ids: Sequence[int]) -> str:
    return _json(ids)


def failures_param(failures: Sequence[Failure]) -> str:
    return _json([(f.key.id, f.key.token, storable(f.error), modifier(f.delay_s), f.retry) for f in failures])


def storable(text: str) -> str:
    """Return the text with characters that cannot be stored replaced by escapes.

    A failure must be stored, whatever the text of its error contains.
    """
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def filter_params(which: Filter) -> Params:
    return {
        "statuses": _json(which.statuses) if which.statuses else None,
        "types": _json(which.event_types) if which.event_types else None,
        "tracking_ids": _json(which.tracking_ids) if which.tracking_ids else None,
        "older_than": None if which.older_than_s is None else f"{-which.older_than_s:+.3f} seconds",
    }


def claims(rows: list[Row], token: str) -> list[Claim]:
    """Return the claims of the rows in the order of claiming, which SQLite's RETURNING does not keep."""
    by_turn: dict[tuple[int, str, int], Claim] = {}
    for (
        event_id, tracking_id, event_type, payload, locked_until, retry_count, max_retries, aggregate_id,
        aggregate_type, metadata, priority, created_at, due_at, recovered, recoveries,
    ) in rows:  # fmt: skip
        tries, level, is_recovered = whole(retry_count), whole(priority), bool(recovered)
        by_turn[-level, due_at, event_id] = Claim(
            event_id, tracking_id, event_type, payload, token, nearest(locked_until), tries + 1, whole(max_retries),
            aggregate_id, aggregate_type, metadata, level, nearest(created_at), recovered=is_recovered,
            is_suspect=is_suspect(is_recovered, tries, None if recoveries is None else whole(recoveries)),
        )  # fmt: skip
    return [by_turn[turn] for turn in sorted(by_turn)]


def recovered(
    event_id: int, tracking_id: str, event_type: str, status: str, retry_count: int, token: str, locked_until: str,
    now: str,
) -> Recovered:  # fmt: skip
    stale_s = (nearest(now) - nearest(locked_until)).total_seconds()
    return Recovered(event_id, tracking_id, event_type, Status(status), retry_count, stale_s, token)


def stats(row: Row) -> Stats:
    pending, processing, total, failed, dead_letter, oldest_due_at, lapsed, ran_at, runs, now = row
    completed = 0 if total is None else total - pending - processing - failed - dead_letter
    age_s = max(0.0, _apart_s(now, oldest_due_at) or 0.0)
    return Stats(pending, processing, completed, failed, dead_letter, age_s, lapsed, _apart_s(now, ran_at), runs)


def event_row(row: Row) -> EventRow:
    (
        event_id, tracking_id, event_type, aggregate_id, aggregate_type, payload, metadata, status, priority,
        created_at, due_at, processed_at, retry_count, max_retries, locked_until, lock_token, last_error, root_cause,
        now,
    ) = row  # fmt: skip
    return EventRow(
        event_id, tracking_id, event_type, aggregate_id, aggregate_type, payload, metadata, Status(status),
        whole(priority), nearest(created_at), nearest(due_at), processed_at and nearest(processed_at),
        whole(retry_count), whole(max_retries), locked_until and nearest(locked_until), lock_token, last_error,
        root_cause, (nearest(due_at) - nearest(now)).total_seconds(), _apart_s(locked_until, now),
    )  # fmt: skip


def _apart_s(later: str | None, earlier: str | None) -> float | None:
    return (nearest(later) - nearest(earlier)).total_seconds() if later and earlier else None
