"""Turns values into parameters of event statements as PostgreSQL reads them, and rows into events."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fencehold.backends.postgres.arrays import array, text_array
from fencehold.model.outbox.new_events import NewEvent
from fencehold.model.outbox.rules import Status, is_suspect
from fencehold.ports.events import Claim, EventRow, Failure, Filter, Key, Recovered

Row = tuple[Any, ...]


def keys_params(keys: Sequence[Key]) -> dict[str, Any]:
    return {"ids": array([key.tracking_id for key in keys]), "tokens": text_array([key.token for key in keys])}


def failure_params(failures: Sequence[Failure]) -> dict[str, Any]:
    return {
        **keys_params([failure.key for failure in failures]),
        "errors": [failure.error for failure in failures],
        "delays": [failure.delay_s for failure in failures],
        "retries": [failure.retry for failure in failures],
    }


def add_params(events: Sequence[NewEvent], outbox_id: str | None = None) -> dict[str, Any]:
    """Return the parameters of the statement `add`: one list for each column.

    Lists, not array texts, because a caller's session may use another driver. A column that no event uses is one None.
    """
    return {
        "outbox_id": outbox_id,
        "tracking_ids": [e.tracking_id for e in events],
        "event_types": [e.event_type for e in events],
        "payloads": [e.payload for e in events],
        "max_retries": [e.max_retries for e in events],
        "aggregate_ids": _column([e.aggregate_id for e in events]),
        "aggregate_types": _column([e.aggregate_type for e in events]),
        "metadatas": _column([e.metadata for e in events]),
        "not_befores": _column([e.not_before for e in events]),
        "delays": [e.delay_s for e in events],
        "priorities": [e.priority for e in events],
    }


class NotPlain(Exception):
    """Raised if an event cannot be added by a bulk load (COPY).

    Its tracking id may be known already, or it is due later: COPY can check neither.
    """


def is_special(event: NewEvent) -> bool:
    return bool(event.is_dedupable or event.delay_s or event.not_before)


def copy_text(events: Sequence[NewEvent]) -> bytes:
    """Return the events as lines of COPY's text format. Raises NotPlain if one of them cannot be added by COPY.

    JSON and names contain no tab and no line end, so only backslashes are escaped.
    """
    if any(map(is_special, events)):
        raise NotPlain
    lines = [
        f"{e.tracking_id}\t{_escaped(e.event_type)}\t{_escaped(e.payload)}\t{e.max_retries}\t{_or_null(e.aggregate_id)}"
        f"\t{_or_null(e.aggregate_type)}\t{_or_null(e.metadata)}\t{e.priority}\n"
        for e in events
    ]
    return "".join(lines).encode()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\") if "\\" in text else text


def _or_null(text: str | None) -> str:
    return "\\N" if text is None else _escaped(text)


def _column(values: list[Any]) -> list[Any] | None:
    return values if any(value is not None for value in values) else None


def filter_params(which: Filter) -> dict[str, Any]:
    return {
        "statuses": list(map(str, which.statuses)) or None,
        "types": list(which.event_types) or None,
        "tracking_ids": list(which.tracking_ids) or None,
        "older_than": which.older_than_s,
    }


def claims(rows: Sequence[Row], token: str) -> tuple[list[Claim], dict[int, tuple[dt.datetime, int]]]:
    """Return the claims of the rows and, for each priority, the due time and id of the last event that was claimed.

    The rows come in the order of the claim. Events recovered from a worker that lost them come out of that order, so
    they do not count as the last one.
    """
    made: list[Claim] = []
    last: dict[int, tuple[dt.datetime, int]] = {}
    for (
        event_id, tracking_id, event_type, payload, locked_until, retry_count, max_retries, aggregate_id,
        aggregate_type, metadata, priority, created_at, due_at, recovered, recoveries,
    ) in rows:  # fmt: skip
        made.append(
            Claim(
                event_id, tracking_id, event_type, payload, token, locked_until, retry_count + 1, max_retries,
                aggregate_id, aggregate_type, metadata, priority, created_at, recovered=recovered,
                is_suspect=is_suspect(recovered, retry_count, recoveries),
            )
        )  # fmt: skip
        if not recovered:
            last[priority] = due_at, event_id
    return made, last


def recovered(row: Row) -> Recovered:
    event_id, tracking_id, event_type, status, retry_count, stale_s, token = row
    return Recovered(event_id, tracking_id, event_type, Status(status), retry_count, stale_s, token)


def event_row(row: Row) -> EventRow:
    found = EventRow(*row)
    return replace(
        found, status=Status(found.status), created_at=found.created_at.astimezone(dt.UTC),
        due_at=found.due_at.astimezone(dt.UTC),
        processed_at=_utc(found.processed_at), locked_until=_utc(found.locked_until),
    )  # fmt: skip


def _utc(when: dt.datetime | None) -> dt.datetime | None:
    return when and when.astimezone(dt.UTC)
