"""Events on PostgreSQL: sets parameters, runs statements and turns rows into events. The rules are in sql/outbox/."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fencehold.backends.postgres.arrays import array, text_array
from fencehold.backends.postgres.callers import PostgresCallersOutbox
from fencehold.backends.postgres.commits import Commits
from fencehold.backends.postgres.outbox import rows as event_rows
from fencehold.backends.postgres.outbox.admin import PostgresEventAdmin
from fencehold.backends.postgres.outbox.session import EventSession
from fencehold.backends.postgres.outbox.sweeps import Sweeps
from fencehold.backends.postgres.schema import PostgresSchema
from fencehold.backends.postgres.session import Rows
from fencehold.backends.sql.statements import OUTBOX, Statements, pyformat
from fencehold.model.errors import Unavailable, Uncertain
from fencehold.model.outbox.new_events import NewEvent
from fencehold.model.outbox.rules import Status
from fencehold.ports.events import Claim, ClaimAsk, ClaimKey, Failure, Key, Recovered, Turn
from fencehold.ports.time_limit import fixed

COPY_MIN = 50  # events: for fewer, one statement is faster than a bulk load and its hint
COPY_CHUNK = 100  # events sent at a time
RENEW_TRIES = 3
RENEW_PAUSE_S = 0.02

Floor = tuple[str, int]
FROM_THE_BEGINNING: Floor = ("-infinity", 0)


class Floors:
    """Remembers, for each priority, behind which event the next claim begins to look: that point is the floor.

    The floor of a priority is the due time and the id of the last event claimed with it. A claim that begins there does
    not read the finished events before it. An event that becomes visible before the floor is found by a sweep, a claim
    that looks at all due events (sweeps.py).
    """

    def __init__(self) -> None:
        self._by_priority: dict[int, Floor] = {0: FROM_THE_BEGINNING}

    def params(self) -> dict[str, Any]:
        if len(self._by_priority) == 1:  # the usual case, so it has a faster way
            [(level, (due_at, event_id))] = self._by_priority.items()
            return {"levels": f"{{{level}}}", "floors": f'{{"{due_at}"}}', "floor_ids": f"{{{event_id}}}"}
        levels = sorted(self._by_priority, reverse=True)
        floors = [self._by_priority[level] for level in levels]
        return {
            "levels": array(levels),
            "floors": text_array(due_at for due_at, _ in floors),
            "floor_ids": array(event_id for _, event_id in floors),
        }

    def know(self, priorities: str) -> None:
        """Add the priorities of events that were just added. `priorities`: numbers with commas, as in the hint."""
        for level in _levels(priorities):
            self._by_priority.setdefault(level, FROM_THE_BEGINNING)

    def forget_others(self, priorities: str | None) -> None:
        """Keep only the floors of the priorities that the last sweep found, and of priority 0, the most usual one."""
        levels = {0, *_levels(priorities or "")}
        self._by_priority = {level: self._by_priority.get(level, FROM_THE_BEGINNING) for level in levels}

    def reached(self, last: Mapping[int, tuple[dt.datetime, int]]) -> None:
        """Move the floor of each priority in `last` to the last event that was claimed with it: its due time and id."""
        for priority, (due_at, event_id) in last.items():
            self._by_priority[priority] = (due_at.isoformat(), event_id)


def copy_chunks(made: list[NewEvent], making: Iterator[NewEvent]) -> Iterator[bytes]:
    """Yield the events as text for COPY, in parts: first those in `made`, then those that `making` still makes.

    The server reads one part while the next one is made. The events of `making` are added to `made`.
    """
    chunk = list(made)
    while chunk:
        yield event_rows.copy_text(chunk)
        chunk = list(itertools.islice(making, COPY_CHUNK))
        made += chunk


class PostgresEventPort:
    def __init__(self, session: EventSession, statements: Statements) -> None:
        self._session = session
        self._statements = statements
        self._floors = Floors()
        self._sweeps = Sweeps()
        session.on_hint(lambda _, priorities: self._floors.know(priorities))

    async def add(self, events: Iterable[NewEvent], limit_s: float) -> list[str]:
        making = iter(() if isinstance(events, Sequence) else events)  # a sequence is checked whole, at once
        made = list(events) if isinstance(events, Sequence) else list(itertools.islice(making, COPY_CHUNK))
        if len(made) >= COPY_MIN and not any(map(event_rows.is_special, made)):
            with contextlib.suppress(event_rows.NotPlain):
                return await self._copy(made, making, limit_s)
        made += making
        rows = await self._session.run("add", event_rows.add_params(made), limit_s)
        return [tracking_id for (tracking_id,) in rows]

    async def _copy(self, made: list[NewEvent], making: Iterator[NewEvent], limit_s: float) -> list[str]:
        """Add the events in one bulk load, all or none; return their tracking ids.

        The hint that wakes workers is sent afterwards. If it fails, a worker finds the events with its next poll.
        """
        await self._session.copy("copy", copy_chunks(made, making), limit_s)
        priorities = ",".join(sorted({str(event.priority) for event in made}))
        with contextlib.suppress(Unavailable, Uncertain):  # the events are stored, even if the hint fails
            await self._session.run("notify", {"priorities": priorities}, limit_s)
        return [event.tracking_id for event in made]

    async def turn(self, completed: Sequence[Key], ask: ClaimAsk | None, limit_s: float) -> Turn:
        if ask is None or ask.limit == 0:
            return Turn(await self._complete(completed, limit_s), [])
        if self._sweeps.is_due(ask, completed):
            turn = Turn(await self._complete(completed, limit_s), await self._sweep(ask, limit_s))
        else:
            turn = await self._complete_and_claim(completed, ask, limit_s)
        self._sweeps.claimed(ask, turn.claims)
        return turn

    async def _complete_and_claim(self, completed: Sequence[Key], ask: ClaimAsk, limit_s: float) -> Turn:
        params = {
            **event_rows.keys_params(completed), **_ask_params(ask), **self._floors.params(), "asked": len(completed),
        }  # fmt: skip
        rows = await self._session.quick("turn", params, limit_s)
        count, which, *_ = rows.pop()
        done = completed
        if count != len(completed):
            accepted = set((which or "").split(","))
            done = [key for key in completed if key.tracking_id in accepted]
        return Turn(done, self._claims(ask, rows))

    async def _complete(self, keys: Sequence[Key], limit_s: float) -> list[Key]:
        if not keys:
            return []
        rows = await self._session.quick("complete", event_rows.keys_params(keys), limit_s)
        return [ClaimKey(event_id, token) for event_id, token in rows]

    async def _sweep(self, ask: ClaimAsk, limit_s: float) -> list[Claim]:
        if ask.in_order:
            rows = await self._session.run_in_turn("order_lock", "claim_in_order", _ask_params(ask), limit_s)
            return self._claims(ask, rows)
        began_s = time.monotonic()
        rows = await self._session.quick("claim", _ask_params(ask), limit_s)
        self._sweeps.swept(ask, began_s)
        _, priorities, *_ = rows.pop()
        self._floors.forget_others(priorities)
        return self._claims(ask, rows)

    def _claims(self, ask: ClaimAsk, rows: Rows) -> list[Claim]:
        """Return the rows as claims, and move the floors, so that the next claim begins behind these events."""
        claims, last = event_rows.claims(rows, ask.token)
        self._floors.reached(last)
        return claims

    async def renew(self, keys: Sequence[ClaimKey], lease_s: float, limit_s: float) -> dict[ClaimKey, dt.datetime]:
        """Renew the claims; return the new end of each that was renewed. A key that was not renewed is left out.

        The statement skips a row that another session has locked, so keys that were left out are tried up to three
        times.
        """
        left_s = fixed(limit_s)
        renewed: dict[ClaimKey, dt.datetime] = {}
        for attempt in range(RENEW_TRIES):
            missing = [key for key in keys if key not in renewed]
            if not missing or left_s() <= 0:
                break
            if attempt:
                await asyncio.sleep(RENEW_PAUSE_S)
            params = {**event_rows.keys_params(missing), "lease": lease_s}
            rows = await self._session.run("renew", params, max(0.001, left_s()))
            renewed.update((ClaimKey(event_id, token), until) for event_id, token, until in rows)
        return renewed

    async def fail(self, failures: Sequence[Failure], limit_s: float) -> list[tuple[ClaimKey, Status]]:
        rows = await self._session.run("fail", event_rows.failure_params(failures), limit_s)
        return [(ClaimKey(event_id, token), Status(status)) for event_id, token, status in rows]

    async def release(self, keys: Sequence[ClaimKey], limit_s: float) -> list[ClaimKey]:
        rows = await self._session.run("release", event_rows.keys_params(keys), limit_s)
        return [ClaimKey(event_id, token) for event_id, token in rows]

    async def reap(self, limit: int, limit_s: float) -> list[Recovered]:
        rows = await self._session.run("reap", {"limit": limit}, limit_s)
        return [event_rows.recovered(row) for row in rows]


class PostgresEvents:
    """One outbox in one event loop. All its parts share one connection, which is opened when it is first needed."""

    def __init__(self, info: str, package: str, table: str, commits: Commits | None = None) -> None:
        statements = Statements(package, table, pyformat, OUTBOX)
        self._session = EventSession(info, statements, commits)
        self.schema = PostgresSchema(info, statements)
        self.port = PostgresEventPort(self._session, statements)
        self.in_tx = PostgresCallersOutbox(statements, self._session.run)
        self.admin = PostgresEventAdmin(self._session)
        self.hints = self._session

    async def close(self) -> None:
        await self._session.close()


def _levels(priorities: str) -> list[int]:
    return [int(word) for word in priorities.split(",") if word.lstrip("-").isdigit()]


def _ask_params(ask: ClaimAsk) -> dict[str, Any]:
    types = None if ask.event_types is None else text_array(ask.event_types)
    return {
        "limit": ask.limit, "token": ask.token, "lease": ask.lease_s, "types": types,
        "isolated": ask.suspects_max is not None, "suspects": ask.suspects_max or 0,
    }  # fmt: skip
