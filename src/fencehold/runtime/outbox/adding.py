"""Stores events for sure, each once. An add without an answer is repeated; the tracking ids prevent duplicates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from fencehold.model.errors import ConfigurationError, FenceholdError, Uncertain
from fencehold.model.outbox.new_events import NewEvent
from fencehold.ports.events import EventPort


async def add_surely(port: EventPort, events: Iterable[NewEvent], limit_s: float) -> None:
    """Store the events: they are stored when this returns. An add without an answer is repeated once, within the limit.

    Raises Uncertain if the events may be stored, even if the second try was refused: the first may have been executed.
    If that error has the code `not_replicated`, the events are stored, but perhaps on this server alone.
    """
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + limit_s
    coming = Coming(events)
    try:
        await port.add(events if isinstance(events, list) else coming, limit_s)
    except Uncertain as first:
        if first.code == "not_replicated":
            raise  # stored on this server: a repeat writes nothing, and could only wait for the standby as long again
        again = coming.all()
        for event in again:
            event.is_dedupable = True
        try:
            await port.add(again, max(0.0, ends_s - loop.time()))
        except Uncertain:
            raise
        except FenceholdError as second:
            raise first from second


class Coming(Iterator[NewEvent]):
    """An iterator of events, each checked when it is asked for.

    `all` returns all events once more, for a second try.
    """

    def __init__(self, events: Iterable[NewEvent]) -> None:
        self._rest = iter(events)
        self._made: list[NewEvent] = []
        self._bad: ConfigurationError | None = None

    def __next__(self) -> NewEvent:
        try:
            event = next(self._rest)
        except ConfigurationError as error:
            self._bad = error
            raise
        self._made.append(event)
        return event

    def all(self) -> list[NewEvent]:
        """Return all events, those already handed out and the rest.

        Raises the ConfigurationError of a bad event, even if it was raised before: then none of the events was stored.
        """
        if self._bad is not None:
            raise self._bad
        return [*self._made, *self]
