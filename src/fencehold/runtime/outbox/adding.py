"""Events stored for sure, each once: an add without an answer is repeated, which its tracking ids make safe."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from fencehold.model.errors import ConfigurationError, FenceholdError, Uncertain
from fencehold.model.outbox.new_events import NewEvent
from fencehold.ports.events import EventPort


async def add_surely(port: EventPort, events: Iterable[NewEvent], limit_s: float) -> None:
    """Stored when this returns. Without an answer it is asked once more, within the same limit.

    Uncertain: they may be stored (not_replicated: they are, perhaps on this server alone). Whatever the second try
    says, the first may have been executed.
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
    """Events that are checked as they are asked for, and can be had again."""

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
        """Those handed out and the rest. A bad one is raised, also if it was met before: then none was stored."""
        if self._bad is not None:
            raise self._bad
        return [*self._made, *self]
