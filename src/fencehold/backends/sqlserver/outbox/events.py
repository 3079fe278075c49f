"""The verbs of events on SQL Server: binds parameters, runs statements and maps rows. The rules are in sql/outbox/."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable, Sequence

from fencehold.backends.absent import NoHints
from fencehold.backends.sql.statements import OUTBOX, Statements
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.batch import Rows
from fencehold.backends.sqlserver.callers import SqlServerCallersOutbox
from fencehold.backends.sqlserver.outbox import rows as event_rows
from fencehold.backends.sqlserver.outbox.admin import SqlServerEventAdmin
from fencehold.backends.sqlserver.params import instant
from fencehold.backends.sqlserver.schema import SqlServerSchema
from fencehold.backends.sqlserver.session import Session
from fencehold.model.outbox.new_events import NewEvent
from fencehold.model.outbox.rules import Status
from fencehold.ports.events import ClaimAsk, ClaimKey, Failure, Key, Recovered, Turn
from fencehold.ports.time_limit import fixed

RENEW_TRIES = 3
RENEW_PAUSE_S = 0.02
PATIENCE_PART = 0.4  # the part of the limit that an in-order claim may wait for its turn; the rest is for the claim


class SqlServerEventPort:
    """The verbs of producers, workers and the reaper.

    Each verb is one batch and one transaction: it commits whole or not.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, events: Iterable[NewEvent], limit_s: float) -> list[str]:
        """Store the events in one round trip and return the tracking ids of those that were not known yet."""
        made = list(events)
        if not made:
            return []
        rows = await self._session.run("add", event_rows.add_params(made), limit_s)
        return [tracking_id for _, tracking_id in rows]

    async def turn(self, completed: Sequence[Key], ask: ClaimAsk | None, limit_s: float) -> Turn:
        if ask is not None and ask.limit > 0:
            return await self._complete_and_claim(completed, ask, limit_s)
        if not completed:
            return Turn([], [])
        rows = await self._session.run("complete", {"keys": event_rows.keys_param(completed)}, limit_s)
        return Turn(_accepted(completed, rows), [])

    async def _complete_and_claim(self, completed: Sequence[Key], ask: ClaimAsk, limit_s: float) -> Turn:
        params = event_rows.ask_params(completed, ask)
        if ask.in_order:
            params["patience_ms"] = max(1, int(limit_s * 1000 * PATIENCE_PART))
        rows = await self._session.run("claim_in_order" if ask.in_order else "claim", params, limit_s)
        done = [(event_id, token) for event_id, *_, token in rows if token is not None]
        claims = [event_rows.claim(ask.token, *columns) for *columns, token in rows if token is None]
        return Turn(_accepted(completed, done), claims)

    async def renew(self, keys: Sequence[ClaimKey], lease_s: float, limit_s: float) -> dict[ClaimKey, dt.datetime]:
        """Renew the leases and return until when each key is held. Leaves out keys whose lease is not theirs any more.

        A key that was left out is tried a few times more, because another session may only have kept its row locked.
        """
        left_s = fixed(limit_s)
        renewed: dict[ClaimKey, dt.datetime] = {}
        for attempt in range(RENEW_TRIES):
            missing = [key for key in keys if key not in renewed]
            if not missing or left_s() <= 0:
                break
            if attempt:
                await asyncio.sleep(RENEW_PAUSE_S)
            params = {"keys": event_rows.keys_param(missing), "lease_us": round(lease_s * 1_000_000)}
            rows = await self._session.run("renew", params, max(0.001, left_s()))
            renewed.update((ClaimKey(event_id, token), instant(until)) for event_id, token, until in rows)
        return renewed

    async def fail(self, failures: Sequence[Failure], limit_s: float) -> list[tuple[ClaimKey, Status]]:
        if not failures:
            return []
        rows = await self._session.run("fail", {"failures": event_rows.failures_param(failures)}, limit_s)
        return [(ClaimKey(event_id, token), Status(status)) for event_id, token, status in rows]

    async def release(self, keys: Sequence[ClaimKey], limit_s: float) -> list[ClaimKey]:
        if not keys:
            return []
        rows = await self._session.run("release", {"keys": event_rows.keys_param(keys)}, limit_s)
        return [ClaimKey(event_id, token) for event_id, token in rows]

    async def reap(self, limit: int, limit_s: float) -> list[Recovered]:
        rows = await self._session.run("reap", {"limit": limit}, limit_s)
        return [event_rows.recovered(*row) for row in rows]


class SqlServerEvents:
    """One outbox for one event loop, on one connection with a thread of its own."""

    def __init__(self, address: Address, package: str, table: str) -> None:
        statements = Statements(package, table, topic=OUTBOX)
        self._session = Session(address, statements, "fencehold-mssql-events")
        self.schema = SqlServerSchema(address, statements)
        self.port = SqlServerEventPort(self._session)
        self.in_tx = SqlServerCallersOutbox(statements, self._session.run)
        self.admin = SqlServerEventAdmin(self._session)
        self.hints = NoHints()

    async def close(self) -> None:
        await self._session.close()


def _accepted(keys: Sequence[Key], rows: Rows) -> list[Key]:
    """Return those of the given keys that the rows name, each once, as the same objects."""
    accepted = set(rows)
    once = {(key.id, key.token): key for key in keys}
    return [key for place, key in once.items() if place in accepted]
