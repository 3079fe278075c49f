"""Checks and serialises every field of a new event, before anything is sent."""

from __future__ import annotations

import datetime as dt
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fencehold.model import durations
from fencehold.model.errors import ConfigurationError
from fencehold.model.json_text import json_text
from fencehold.model.json_types import Json, JsonMapping
from fencehold.model.outbox.settings import OutboxSettings

EVENT_TYPE_CHARS_MAX = 128
AGGREGATE_CHARS_MAX = 256
PRIORITY_MAX = 32_767

_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}  # RFC 9562: two bits are fixed


@dataclass(slots=True)
class NewEvent:
    """One event to be stored. Its fields are checked and serialised already."""

    tracking_id: str
    event_type: str
    payload: str
    max_retries: int
    aggregate_id: str | None = None
    aggregate_type: str | None = None
    metadata: str | None = None
    not_before: dt.datetime | None = None
    delay_s: float = 0.0
    priority: int = 0
    is_dedupable: bool = False  # the caller chose the tracking id, so it may be known already


def new_event(
    settings: OutboxSettings,
    event_type: str,
    payload: Json,
    *,
    aggregate_id: str | None = None,
    aggregate_type: str | None = None,
    tracking_id: str | uuid.UUID | None = None,
    not_before: dt.datetime | durations.Duration | None = None,
    priority: int = 0,
    metadata: JsonMapping | None = None,
    fresh_id: str = "",
) -> NewEvent:
    """Return the event, checked.

    Raises ConfigurationError (bad_event, unknown_event_type, bad_payload, payload_too_large). `fresh_id` is an id from
    `new_tracking_ids`, which makes many at once. Without `fresh_id` and `tracking_id` an id is made here.
    """
    _check_type(event_type, settings)
    event = NewEvent(
        (fresh_id or new_tracking_id()) if tracking_id is None else _given_id(tracking_id), event_type,
        json_text(payload, "payload", settings.payload_bytes_max), settings.max_retries,
        is_dedupable=tracking_id is not None,
    )  # fmt: skip
    if aggregate_id is not None:
        event.aggregate_id = _text(aggregate_id, "aggregate_id", AGGREGATE_CHARS_MAX)
    if aggregate_type is not None:
        event.aggregate_type = _text(aggregate_type, "aggregate_type", AGGREGATE_CHARS_MAX)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise _bad(f"metadata {metadata!r:.80} is no mapping", 'Use a dict, such as {"source": "checkout"}.')
    if metadata:
        event.metadata = json_text(metadata, "metadata", settings.payload_bytes_max)
    if not_before is not None:
        _schedule(event, not_before)
    if priority != 0:
        event.priority = _priority(priority)
    return event


def new_tracking_id() -> str:
    """Return a UUID of version 7. Such ids are unique and sort by time, so that an index of them grows at one end."""
    return next(new_tracking_ids(1))


def new_tracking_ids(count: int) -> Iterator[str]:
    """Yield `count` tracking ids, made all at once: much faster than `count` calls of `new_tracking_id`."""
    ms = f"{time.time_ns() // 1_000_000:012x}"
    head = f"{ms[:8]}-{ms[8:]}-7"
    chance = os.urandom(10 * count).hex()
    for at in range(0, 20 * count, 20):
        c = chance[at : at + 19]
        yield f"{head}{c[:3]}-{_VARIANT[c[3]]}{c[4:7]}-{c[7:]}"


def _check_type(event_type: object, settings: OutboxSettings) -> None:
    name = _text(event_type, "event_type", EVENT_TYPE_CHARS_MAX)
    if settings.event_types is not None and name not in settings.event_types:
        raise ConfigurationError(
            f"{name!r} is no event type of this outbox; nothing was written.",
            hint=f"Known are: {', '.join(sorted(settings.event_types))}.",
            code="unknown_event_type",
        )


def _given_id(value: object) -> str:
    try:
        return str(value if isinstance(value, uuid.UUID) else uuid.UUID(str(value)))
    except ValueError:
        raise _bad(f"tracking_id {value!r:.80} is no UUID", "Use uuid.uuid4(), or leave it out.") from None


def _schedule(event: NewEvent, not_before: object) -> None:
    if isinstance(not_before, dt.datetime):
        if not_before.tzinfo is None:
            raise _bad("not_before has no time zone", "Use datetime.now(timezone.utc) + timedelta(...).")
        if not 1 < not_before.year < dt.MAXYEAR:  # near either end some time zones cannot express the time
            raise _bad(f"not_before is in the year {not_before.year}", "Use a time that may come.")
        event.not_before = not_before.astimezone(dt.UTC)
    else:
        event.delay_s = durations.seconds(not_before, "not_before")  # type: ignore[arg-type]


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > PRIORITY_MAX:
        raise _bad(f"priority {value!r} is no whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}", "Higher is sooner.")
    return value


def _text(value: object, what: str, chars_max: int) -> str:
    if not isinstance(value, str) or not value or len(value) > chars_max or not value.isprintable():
        raise _bad(f"{what} {value!r:.80} is no text of 1 to {chars_max} printable characters", "Nothing was written.")
    return value


def _bad(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{message}.", hint=hint, code="bad_event")
