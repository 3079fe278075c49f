"""The service's store on SQL Server.

Intake has several lines, the schedule has one, and the leader's fenced batches have their own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fencehold.backends.sqlserver import driver, faults
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.params import NO_TEXT, instant, instant_text, listed, rows_json
from fencehold.backends.sqlserver.schema import SqlServerSchema
from submission_manager.model.intents import Attempt, Intent, NewIntent, Status
from submission_manager.ports import Progress, Submitted
from submission_manager.stores import rows
from submission_manager.stores.dialect import Dialect
from submission_manager.stores.gathering import Gathering
from submission_manager.stores.sqlserver.attempts import SqlServerAttempts
from submission_manager.stores.sqlserver.pool import NO_NUMBER, Pool
from submission_manager.stores.sqlserver.schedule import SqlServerSchedule
from submission_manager.stores.statements import TABLE, StoreStatements

INIT_LIMIT_S = 60.0
OPEN_LIMIT_S = 10.0
INTAKE_LANES = 2  # a third would compete with the first two for the same disk
CLIENT_LINES = INTAKE_LANES + 4
WRITE_LINES = 4  # as many as the executor's concurrent writes
CONFLICTS_MAX = 20


class SqlServerStore:
    def __init__(self, url: str) -> None:
        address = Address.of(url)
        statements = StoreStatements("sqlserver", "fencehold.backends.sqlserver")
        data_errors = (driver.DataError, driver.IntegrityError)
        dialect = Dialect(statements, instant, instant_text, driver.Error, data_errors, faults.of_statement)
        self._clients = Pool(address, statements, CLIENT_LINES, "submissions-mssql")
        self._writes = Pool(address, statements, WRITE_LINES, "submissions-mssql-leader")
        self._schema = SqlServerSchema(address, statements)
        self.intake = SqlServerIntake(self._clients, dialect)
        self.schedule = SqlServerSchedule(Pool(address, statements, 1, "submissions-mssql-schedule"))
        self.attempts = SqlServerAttempts(self._writes, self._clients, dialect)

    async def open(self) -> None:
        await self._clients.run("probe", {}, OPEN_LIMIT_S)

    async def init(self) -> list[str]:
        return await self._schema.init(INIT_LIMIT_S)

    def script(self) -> str:
        return self._schema.script()

    async def close(self) -> None:
        await self.intake.close()
        await self.schedule.close()
        await self._writes.close()
        await self._clients.close()


class SqlServerIntake:
    def __init__(self, pool: Pool, dialect: Dialect) -> None:
        self._pool = pool
        self._dialect = dialect
        self._gathering = Gathering(self._store_batch, INTAKE_LANES)

    async def submit(self, new: NewIntent, limit_s: float) -> Submitted:
        rows.check_id(new.intent_id)
        if not is_kept(new.intent_id):
            raise rows.bad_id("SQL Server takes an id that ends with a blank for the one without.")
        return await self._gathering.submit(new, limit_s)

    async def _store_batch(self, batch: list[NewIntent], limit_s: float) -> list[Submitted]:
        ends_s = time.monotonic() + limit_s
        answers: dict[str, Submitted] = {}
        by_contract: dict[int, list[NewIntent]] = {}
        for new in batch:
            by_contract.setdefault(id(new.contract), []).append(new)
        for group in by_contract.values():
            answers |= await self._store_group(group, ends_s)
        return [answers[new.intent_id] for new in batch]

    async def _store_group(self, group: list[NewIntent], ends_s: float) -> dict[str, Submitted]:
        by_id = {new.intent_id: new for new in group}
        params = submission(group)
        stored = await self._stored(params, ends_s)
        answers = {row[0]: rows.created(by_id[row[0]], row[1], self._dialect) for row in stored}
        others = [intent_id for intent_id in by_id if intent_id not in answers]
        if others:
            found = await self._pool.run("submitted", {"ids": _ids(others)}, ends_s - time.monotonic())
            answers |= {row[0]: rows.known(by_id[row[0]], row, self._dialect) for row in found}
        return answers

    async def _stored(self, params: dict[str, Any], ends_s: float) -> list[rows.Row]:
        """Store the batch and return the rows that were new.

        If another submission stores one of the ids first, the whole statement fails and stores nothing; the repeated
        statement then sees the other's row.
        """
        for _ in range(CONFLICTS_MAX):
            try:
                return await self._pool.run("submit", params, ends_s - time.monotonic())
            except driver.IntegrityError as error:
                fault = self._dialect.fault(error)
            except driver.DataError as error:
                raise self._dialect.fault(error) from None
        raise fault

    async def repeated(self, intent_id: str, target: str, payload: bytes | None, limit_s: float) -> Intent | None:
        if not is_kept(intent_id):
            return None
        found = await self._pool.run("submitted", {"ids": _ids([intent_id])}, limit_s)
        same = [row for row in found if rows.is_repeat(target, payload, row, self._dialect)]
        return rows.intent(same[0], self._dialect) if same else None

    async def read(self, intent_id: str, limit_s: float) -> Intent | None:
        if not is_kept(intent_id):
            return None
        found = await self._pool.run("read", {"id": intent_id}, limit_s)
        return rows.intent(found[0], self._dialect) if found else None

    async def history(self, intent_id: str, limit_s: float) -> tuple[Intent, list[Attempt]] | None:
        if not is_kept(intent_id):
            return None
        return rows.history(await self._pool.run("history", {"id": intent_id}, limit_s), self._dialect)

    async def progress(self, intent_ids: Sequence[str], limit_s: float) -> list[Progress]:
        found = await self._pool.run("progress", {"ids": _ids(filter(is_kept, intent_ids))}, limit_s)
        return [Progress(intent_id, Status(status), count) for intent_id, status, count in found]

    async def pending_counts(self, limit_s: float) -> Mapping[str, int]:
        return dict(await self._pool.run("pending_counts", {}, limit_s))

    async def missing_tables(self, limit_s: float) -> list[str]:
        ends_s = time.monotonic() + limit_s
        missing = await self._pool.run("missing", {}, limit_s)
        if missing:
            return [row[0] for row in missing]
        steps = await self._pool.run("steps_applied", {"component": TABLE}, ends_s - time.monotonic())
        return [] if self._dialect.statements.are_applied({row[0] for row in steps}) else [f"{TABLE} (an old one)"]

    async def rights_missing(self, limit_s: float) -> list[str]:
        return [row[0] for row in await self._pool.run("rights_missing", {}, limit_s)]

    async def owner(self, lease_name: str, limit_s: float) -> str:
        ends_s = time.monotonic() + limit_s
        while True:
            found = rows.owner(await self._pool.run("owner", {}, ends_s - time.monotonic()), lease_name)
            if found is not None:
                return found
            with suppress(driver.IntegrityError):  # another instance was first; the next read finds it
                await self._pool.run("own", {"lease_name": lease_name}, ends_s - time.monotonic())

    async def close(self) -> None:
        await self._gathering.close()


def is_kept(intent_id: str) -> bool:
    """Whether the database can distinguish this id from all others: its comparisons ignore blanks at the end."""
    return rows.is_storable(intent_id) and not intent_id.endswith(" ")


def _ids(ids: Iterable[str]) -> str:
    return rows_json({"id": listed(one)} for one in ids)


def submission(group: list[NewIntent]) -> dict[str, Any]:
    """The parameters of `submit`, for intents of one contract."""
    contract = rows.contract_params(group[0].contract)
    limits = ("max_acceptance_seconds", "max_attempts")
    filled = {name: value or (NO_NUMBER if name in limits else NO_TEXT) for name, value in contract.items()}
    return {**filled, **_packed(group)}


def _packed(group: list[NewIntent]) -> dict[str, Any]:
    """Pack a group into two parameters: JSON cannot hold bytes, so hashes and payloads are in one byte string.

    The JSON holds the ids, and for each the start of its bytes and the length of its payload.
    """
    given, parts, place = [], [], 1
    for new in group:
        payload = rows.payload(new) or b""
        given.append({"id": listed(new.intent_id), "from": place, "length": len(payload)})
        parts += [rows.payload_hash(new.payload), payload]
        place += len(parts[-2]) + len(payload)
    return {"given": rows_json(given), "bytes": b"".join(parts)}
