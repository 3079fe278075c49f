"""Named leases on SQL Server: binds parameters, runs statements and maps rows. The rules are in the .sql files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from fencehold.backends.sqlserver.params import instant, listed, microseconds, rows_json
from fencehold.backends.sqlserver.session import Session
from fencehold.model.election.rules import Ask, Busy, Lease, Refusal, TermKey
from fencehold.model.errors import Unavailable
from fencehold.ports.leases import Answer

GRANTED = ("granted", "yes", "seen")
SPENT = "spent"
NOT_YET = ("busy", SPENT)


class SqlServerLeases:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def acquire(self, ask: Ask, limit_s: float) -> Answer:
        params = {"name": ask.name, "holder": ask.holder_id, "lease_us": microseconds(ask.lease_s), "nonce": ask.nonce}
        try:
            rows = await self._session.run("acquire", params, limit_s)
        except Unavailable as error:
            if error.code != "conflict":
                raise
            return Busy()  # another session made the row first
        for verdict, *_ in rows:
            if verdict == SPENT:
                await self._session.drop_line()
        return answer(*rows[0]) if rows else Busy()

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        return await self._change("renew", keys, limit_s)

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        return await self._change("release", keys, limit_s)

    async def read(self, names: Sequence[str], limit_s: float) -> dict[str, Lease]:
        asked = rows_json({"name": listed(name)} for name in names)
        rows = await self._session.run("read", {"names": asked}, limit_s)
        return {one.name: one for one in (lease(*columns) for _, *columns in rows)}

    async def ask_step_down(self, name: str, epoch: int, limit_s: float) -> Answer:
        rows = await self._session.run("ask_step_down", {"name": name, "epoch": epoch}, limit_s)
        return answer(*rows[0]) if rows else Refusal("absent")

    async def _change(self, statement: str, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        asked = rows_json(map(_asked, keys))
        return [answer(*row) for row in await self._session.run(statement, {"keys": asked}, limit_s)]

    async def list(self, prefix: str, limit_s: float) -> list[Lease]:
        found = [lease(*columns) for _, *columns in await self._session.run("list", {"prefix": prefix}, limit_s)]
        return sorted(found, key=lambda one: one.name)  # the server sorts by code units, not by characters


def _asked(key: TermKey) -> dict[str, Any]:
    return {
        "name": listed(key.name), "holder": listed(key.holder_id), "epoch": key.epoch,
        "lease_us": microseconds(key.lease_s),
    }  # fmt: skip


def answer(verdict: str, name: str, holder: str | None, *columns: Any) -> Answer:
    current = lease(name, holder, *columns) if holder is not None else None
    if verdict in GRANTED and current is not None:
        return current
    return Busy(current) if verdict in NOT_YET else Refusal(verdict, current)


def lease(
    name: str, holder: str, epoch: int, acquired: dt.datetime, renewed: dt.datetime, expires: dt.datetime,
    now: dt.datetime, step_down: int, nonce: str, lease_id: str,
) -> Lease:  # fmt: skip
    """Return the lease of one row.

    The parameters are the row's columns after `verdict`, the same for every statement.
    """
    remaining_s = (expires - now).total_seconds()
    times = instant(acquired), instant(renewed), instant(expires)
    return Lease(name, holder, epoch, *times, remaining_s, bool(step_down), nonce, lease_id)
