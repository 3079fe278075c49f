"""Checks the arguments of an outbox's verbs: lists of events, events or their ids, claims."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from fencehold.model.errors import ConfigurationError
from fencehold.model.json_types import Json
from fencehold.ports.events import Claim

#: One of many events to be added: its type and payload, or a mapping with the names of `add`'s arguments.
EventToAdd: TypeAlias = tuple[str, Json] | Mapping[str, Any]


def listed(events: Iterable[Any]) -> list[Any]:
    if isinstance(events, (str, bytes, Mapping)) or not isinstance(events, Iterable):
        hint = 'Give a list such as [("order.created", {"id": 7})].'
        raise ConfigurationError(f"Not a list of events: {events!r:.80}.", hint=hint, code="bad_event")
    return list(events)


def tracking_id_of(event: Claim | str | uuid.UUID) -> str:
    try:
        return event.tracking_id if isinstance(event, Claim) else str(uuid.UUID(str(event)))
    except ValueError:
        hint = "Give the event itself, or its tracking id."
        raise ConfigurationError(f"{event!r:.80} is no event.", hint=hint, code="bad_event") from None


def claims_of(claims: Claim | Sequence[Claim]) -> list[Claim]:
    given: list[Any] = [claims] if isinstance(claims, Claim) else list(claims)
    if wrong := [type(item).__name__ for item in given if not isinstance(item, Claim)]:
        raise ConfigurationError(f"A {wrong[0]} is no Claim.", hint="Give what claim() returned.", code="bad_claim")
    return given


def done_now(waiting: Any) -> Any:
    """Return the result of a call on a sync connection, which is done already.

    Raises ConfigurationError (`bad_connection`) for an async connection, on which nothing has begun.
    """
    if asyncio.iscoroutine(waiting):
        waiting.close()
        raise ConfigurationError(
            "A sync connection is needed here; nothing was written.",
            hint="fencehold.sync takes sync connections and sessions as tx. For an async one use the async store: "
            "`async with fencehold.connect(...) as store:` and `await outbox.add(..., tx=connection)`.",
            code="bad_connection",
        )
    try:
        next(waiting.__await__())
    except StopIteration as done:
        return done.value
    raise AssertionError("what is done already does not wait")
