"""Named leases on PostgreSQL: sets parameters, runs statements and turns rows into leases.

The rules are in the .sql files.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from fencehold.backends.postgres.session import Session
from fencehold.model.election.rules import Ask, Busy, Lease, Refusal, TermKey
from fencehold.ports.leases import Answer

GRANTED = ("granted", "yes", "seen")


class PostgresLeases:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def acquire(self, ask: Ask, limit_s: float) -> Answer:
        params = {"name": ask.name, "holder": ask.holder_id, "lease": ask.lease_s, "nonce": ask.nonce}
        rows = await self._session.run("acquire", params, limit_s)
        return answer(*rows[0]) if rows else Busy()

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        params = {**_columns(keys), "leases": [k.lease_s for k in keys]}
        return [answer(*row) for row in await self._session.run("renew", params, limit_s)]

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        return [answer(*row) for row in await self._session.run("release", _columns(keys), limit_s)]

    async def read(self, names: Sequence[str], limit_s: float) -> dict[str, Lease]:
        rows = await self._session.run("read", {"names": list(names)}, limit_s)
        return {found.name: found for found in (lease(*row) for row in rows)}

    async def list(self, prefix: str, limit_s: float) -> list[Lease]:
        return [lease(*row) for row in await self._session.run("list", {"prefix": prefix}, limit_s)]

    async def ask_step_down(self, name: str, epoch: int, limit_s: float) -> Answer:
        rows = await self._session.run("ask_step_down", {"name": name, "epoch": epoch}, limit_s)
        return answer(*rows[0]) if rows else Refusal("absent")


def _columns(keys: Sequence[TermKey]) -> dict[str, Any]:
    return {
        "names": [k.name for k in keys],
        "holders": [k.holder_id for k in keys],
        "epochs": [k.epoch for k in keys],
    }


def answer(verdict: str, name: str, holder: str | None, *others: Any) -> Answer:
    current = lease(verdict, name, holder, *others) if holder is not None else None
    if verdict in GRANTED and current is not None:
        return current
    return Busy(current) if verdict == "busy" else Refusal(verdict, current)


def lease(
    _verdict: str, name: str, holder: str, epoch: int, acquired: dt.datetime, renewed: dt.datetime,
    expires: dt.datetime, remaining_s: float, step_down: bool, nonce: str, lease_id: str, *_: object,
) -> Lease:  # fmt: skip
    times = acquired.astimezone(dt.UTC), renewed.astimezone(dt.UTC), expires.astimezone(dt.UTC)
    return Lease(name, holder, epoch, *times, remaining_s, step_down, nonce, lease_id)
