"""Turns values into parameters of event statements as SQL Server reads them, and rows into events.

No parameter is ever NULL: the driver would first ask the server for its type. An empty text means "all".
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from fencehold.backends.sqlserver.params import instant, instant_text, listed, microseconds, rows_json
from fencehold.model.outbox.new_events import NewEvent
from fencehold.model.outbox.rules import Status, is_suspect
from fencehold.ports.events import Claim, ClaimAsk, EventRow, Failure, Filter, Key, Recovered, Stats

Params = dict[str, Any]

ALL = ""
ANY_AGE = -1


def add_params(events: Iterable[NewEvent], *, within: str | None = None) -> Params:
    """Return the parameters of the statement that adds events. Of two events with one tracking id the first is stored.

    `within`: the outbox's id when the statement runs in a caller's transaction, else None.
    """
    once: dict[str, NewEvent] = {}
    for event in events:
        once.setdefault(event.tracking_id, event)
    texts = [text for event in once.values() for text in (event.payload, event.metadata)]
    return {
        "events": rows_json(map(_new, once.values())),
        "texts": json.dumps([text and listed(text) for text in texts], ensure_ascii=False),
        "within": int(within is not None),
        "outbox_id": within or "",
    }


def _new(event: NewEvent) -> Params:
    row: Params = {
        "tracking_id": event.tracking_id, "event_type": listed(event.event_type),
        "max_retries": event.max_retries, "priority": event.priority, "delay_us": microseconds(event.delay_s),
        "is_chosen": int(event.is_dedupable),
    }  # fmt: skip
    if event.aggregate_id is not None:
        row["aggregate_id"] = listed(event.aggregate_id)
    if event.aggregate_type is not None:
        row["aggregate_type"] = listed(event.aggregate_type)
    if event.not_before is not None:
        row["not_before"] = instant_text(event.not_before)
    return row


def keys_param(keys: Sequence[Key]) -> str:
    """Return the keys as one JSON text, each once."""
    once = dict.fromkeys((key.id, key.token) for key in keys)
    return rows_json({"id": event_id, "token": listed(token)} for event_id, token in once)


def failures_param(failures: Sequence[Failure]) -> str:
    """Return the failures as one JSON text. Of two failures with the same key the first is stored."""
    once: dict[tuple[int, str], Failure] = {}
    for failure in failures:
        once.setdefault((failure.key.id, failure.key.token), failure)
    return rows_json(
        {
            "id": event_id, "token": listed(token), "error": listed_error(failure.error),
            "delay_us": microseconds(failure.delay_s), "retry": int(failure.retry),
        }
        for (event_id, token), failure in once.items()
    )  # fmt: skip


def listed_error(text: str) -> str:
    """Return an error's text as a list contains it, with what SQL Server cannot store written as escapes.

    So the failure is recorded whatever its text contains.
    """
    storable = text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
    return listed(storable).replace("\t", "%09").replace("\r", "%0D").replace("\n", "%0A")


def ask_params(completed: Sequence[Key], ask: ClaimAsk) -> Params:
    return {
        "keys": keys_param(completed) if completed else "",
        "limit": ask.limit, "token": ask.token, "lease_us": microseconds(ask.lease_s),
        "types": ALL if ask.event_types is None else _types_param(ask.event_types),
        "isolated": int(ask.suspects_max is not None), "suspects": min(ask.limit, ask.suspects_max or 0),
    }  # fmt: skip


def filter_params(which: Filter) -> Params:
    named = dict.fromkeys(which.tracking_ids)
    return {
        "statuses": rows_json({"status": str(status)} for status in which.statuses) if which.statuses else ALL,
        "types": _types_param(which.event_types) if which.event_types else ALL,
        "tracking_ids": rows_json({"tracking_id": one} for one in named) if named else ALL,
        "older_us": ANY_AGE if which.older_than_s is None else microseconds(which.older_than_s),
    }


def _types_param(event_types: Iterable[str]) -> str:
    return rows_json({"event_type": listed(event_type)} for event_type in event_types)


def claim(
    token: str, event_id: int, tracking_id: str, event_type: str, payload: str, locked_until: dt.datetime,
    retry_count: int, max_retries: int, aggregate_id: str | None, aggregate_type: str | None, metadata: str | None,
    priority: int, created_at: dt.datetime, due_at: dt.datetime, is_recovered: int, recoveries: int | None,
) -> Claim:  # fmt: skip
    """Return the claim. The parameters after `token` are the columns of a row."""
    recovered = bool(is_recovered)
    return Claim(
        event_id, tracking_id, event_type, payload, token, instant(locked_until), retry_count + 1, max_retries,
        aggregate_id, aggregate_type, metadata, priority, instant(created_at), recovered=recovered,
        is_suspect=is_suspect(recovered, retry_count, recoveries),
    )  # fmt: skip


def recovered(
    event_id: int, tracking_id: str, event_type: str, status: str, retry_count: int, locked_until: dt.datetime,
    token: str, now: dt.datetime,
) -> Recovered:  # fmt: skip
    stale_s = (now - locked_until).total_seconds()
    return Recovered(event_id, tracking_id, event_type, Status(status), retry_count, stale_s, token)


def stats(
    pending: int, processing: int, completed: int, failed: int, dead_letter: int, oldest_due_at: dt.datetime | None,
    lapsed: int, ran_at: dt.datetime | None, runs: int, now: dt.datetime,
) -> Stats:  # fmt: skip
    age_s = max(0.0, _apart_s(now, oldest_due_at) or 0.0)
    return Stats(pending, processing, completed, failed, dead_letter, age_s, lapsed, _apart_s(now, ran_at), runs)


def event_row(row: tuple[Any, ...]) -> EventRow:
    """Return the event of one row. Its columns are EventRow's fields in their order, then the store's time."""
    *columns, now = row
    found = EventRow(*(*columns, 0.0, None))
    return replace(
        found, status=Status(found.status), created_at=instant(found.created_at), due_at=instant(found.due_at),
        processed_at=found.processed_at and instant(found.processed_at),
        locked_until=found.locked_until and instant(found.locked_until),
        waits_s=(found.due_at - now).total_seconds(), held_s=_apart_s(found.locked_until, now),
    )  # fmt: skip


def _apart_s(later: dt.datetime | None, earlier: dt.datetime | None) -> float | None:
    return (later - earlier).total_seconds() if later and earlier else None
