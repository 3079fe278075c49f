"""The service's store on PostgreSQL.

Intake uses a pool, the schedule has one connection, and attempts use the term's connection.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from fencehold.backends.postgres import faults, wire
from fencehold.backends.postgres.commits import Commits, Replicated
from fencehold.backends.postgres.schema import PostgresSchema
from fencehold.backends.sql.statements import pyformat
from fencehold.model.durable import Durable
from fencehold.model.errors import FenceholdError
from fencehold.ports.facts import FactSink
from submission_manager.model.backlog import Backlog
from submission_manager.model.contracts import Contract
from submission_manager.model.intents import Attempt, Intent, NewIntent, Status
from submission_manager.ports import Over, Progress, Submitted
from submission_manager.stores import rows
from submission_manager.stores.attempts import Attempts
from submission_manager.stores.dialect import Dialect
from submission_manager.stores.gathering import Gathering
from submission_manager.stores.postgres.pool import Pool, Rows
from submission_manager.stores.postgres.schedule import PostgresSchedule
from submission_manager.stores.statements import TABLE, StoreStatements

INIT_LIMIT_S = 60.0
OPEN_LIMIT_S = 10.0
INTAKE_LANES = 2  # a third would compete with the first two for the same disk
POOL_SIZE = INTAKE_LANES + 4
CONTRACTS_KEPT_MAX = 1000


class PostgresStore:
    def __init__(self, url: str, durable: Durable | None = None, facts: FactSink | None = None) -> None:
        info = wire.conninfo(url)
        commits = Commits() if durable is None else Replicated(durable, facts)
        statements = StoreStatements("postgres", "fencehold.backends.postgres", pyformat)
        data_errors = (psycopg.DataError, psycopg.IntegrityError)
        dialect = Dialect(statements, _utc, lambda at: at, psycopg.Error, data_errors, faults.of_statement)
        self._pool = Pool(info, statements, POOL_SIZE, commits)
        self._schema = PostgresSchema(info, statements)
        self.intake = PostgresIntake(self._pool, dialect)
        self.schedule = PostgresSchedule(info, statements)
        self.attempts = PostgresAttempts(self._pool, dialect)

    async def open(self) -> None:
        await self._pool.run("probe", {}, OPEN_LIMIT_S)

    async def init(self) -> list[str]:
        return await self._schema.init(INIT_LIMIT_S)

    def script(self) -> str:
        return self._schema.script()

    async def close(self) -> None:
        await self.intake.close()
        await self.schedule.close()
        await self._pool.close()


class PostgresIntake:
    def __init__(self, pool: Pool, dialect: Dialect) -> None:
        self._pool = pool
        self._dialect = dialect
        self._gathering = Gathering(self._store_batch, INTAKE_LANES)
        self._contracts: dict[int, tuple[Contract, Mapping[str, Any]]] = {}

    async def submit(self, new: NewIntent, limit_s: float) -> Submitted:
        rows.check_id(new.intent_id)
        return await self._gathering.submit(new, limit_s)

    async def _store_batch(self, batch: list[NewIntent], limit_s: float) -> list[Submitted]:
        left_s = wire.fixed(limit_s)
        answers: dict[str, Submitted] = {}
        by_contract: dict[int, list[NewIntent]] = {}
        for new in batch:
            by_contract.setdefault(id(new.contract), []).append(new)
        for group in by_contract.values():
            answers |= await self._store_group(group, left_s())
        return [answers[new.intent_id] for new in batch]

    async def _store_group(self, group: list[NewIntent], limit_s: float) -> dict[str, Submitted]:
        # Always in the same order: otherwise two lanes with the same ids could deadlock.
        by_id = {new.intent_id: new for new in sorted(group, key=lambda new: new.intent_id)}
        left_s = wire.fixed(limit_s)
        params = {
            **self._contract_params(group[0].contract), "ids": list(by_id),
            "payloads": [rows.payload(new) for new in by_id.values()],
            "hashes": [rows.payload_hash(new.payload) for new in by_id.values()],
        }  # fmt: skip
        stored = await self._pool.run("submit", params, limit_s)
        answers = {row[0]: rows.created(by_id[row[0]], row[1], self._dialect) for row in stored}
        if len(answers) < len(by_id):
            # A second statement: the first one's snapshot does not show rows committed while it waited.
            ids = [intent_id for intent_id in by_id if intent_id not in answers]
            for row in await self._pool.run("submitted", {"ids": ids}, left_s()):
                answers[row[0]] = rows.known(by_id[row[0]], row, self._dialect)
        return answers

    def _contract_params(self, contract: Contract) -> Mapping[str, Any]:
        """The contract's parameters, computed once for each: the registry has few, but every submission needs one."""
        kept = self._contracts.get(id(contract))
        if kept is None:
            if len(self._contracts) >= CONTRACTS_KEPT_MAX:
                self._contracts.clear()
            kept = self._contracts[id(contract)] = (
                contract,
                rows.contract_params(contract),
            )  # the contract is kept too, so that no other object gets its id()
        return kept[1]

    async def repeated(self, intent_id: str, target: str, payload: bytes | None, limit_s: float) -> Intent | None:
        if not rows.is_storable(intent_id):
            return None
        found = await self._pool.run("submitted", {"ids": [intent_id]}, limit_s)
        same = [row for row in found if rows.is_repeat(target, payload, row, self._dialect)]
        return rows.intent(same[0], self._dialect) if same else None

    async def read(self, intent_id: str, limit_s: float) -> Intent | None:
        if not rows.is_storable(intent_id):
            return None
        found = await self._pool.run("read", {"id": intent_id}, limit_s)
        return rows.intent(found[0], self._dialect) if found else None

    async def history(self, intent_id: str, limit_s: float) -> tuple[Intent, list[Attempt]] | None:
        if not rows.is_storable(intent_id):
            return None
        return rows.history(await self._pool.run("history", {"id": intent_id}, limit_s), self._dialect)

    async def progress(self, intent_ids: Sequence[str], limit_s: float) -> list[Progress]:
        ids = [intent_id for intent_id in intent_ids if rows.is_storable(intent_id)]
        found = await self._pool.run("progress", {"ids": ids}, limit_s)
        return [Progress(intent_id, Status(status), count) for intent_id, status, count in found]

    async def pending_counts(self, limit_s: float) -> Mapping[str, int]:
        return dict(await self._pool.run("pending_counts", {}, limit_s))

    async def missing_tables(self, limit_s: float) -> list[str]:
        left_s = wire.fixed(limit_s)
        missing: Rows = await self._pool.run("missing", {}, limit_s)
        if missing:
            return [row[0] for row in missing]
        steps: Rows = await self._pool.run("steps_applied", {"component": TABLE}, left_s())
        return [] if self._dialect.statements.are_applied({row[0] for row in steps}) else [f"{TABLE} (an old one)"]

    async def rights_missing(self, limit_s: float) -> list[str]:
        return [row[0] for row in await self._pool.run("rights_missing", {}, limit_s)]

    async def owner(self, lease_name: str, limit_s: float) -> str:
        left_s = wire.fixed(limit_s)
        while (found := rows.owner(await self._pool.run("owner", {}, left_s()), lease_name)) is None:
            await self._pool.run("own", {"lease_name": lease_name}, left_s())
        return found

    async def close(self) -> None:
        await self._gathering.close()


class PostgresAttempts(Attempts):
    def __init__(self, pool: Pool, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._pool = pool

    def _fault(self, error: Any, limit_s: float) -> FenceholdError:
        return faults.of_fenced(error, limit_s)

    async def owed_webhooks(self, limit: int, limit_s: float) -> list[Over]:
        return [rows.over(row, self._dialect) for row in await self._pool.run("owed", {"limit": limit}, limit_s)]

    async def backlog(self, late_s: int, rows_max: int, limit_s: float) -> Backlog:
        (row,) = await self._pool.run("backlog", {"late_s": late_s, "limit": rows_max}, limit_s)
        return rows.backlog(row, self._dialect)


def _utc(at: dt.datetime) -> dt.datetime:
    """The same instant in UTC, whatever the session's time zone, so that every instance writes it the same way."""
    return at.astimezone(dt.UTC)
