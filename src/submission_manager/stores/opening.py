"""Chooses the parts of the service's store by the database URL; the only place that does."""

from __future__ import annotations

from fencehold import ConfigurationError, Durability, FactSink
from fencehold.own_tables import OwnTables, own_tables
from fencehold.service import scheme
from submission_manager.answers import Answers
from submission_manager.ports import AttemptPort, SchedulePort
from submission_manager.stores.attempts import Attempts
from submission_manager.stores.intake import INTAKE_LANES, Intake
from submission_manager.stores.postgres import PostgresIntake, PostgresSchedule
from submission_manager.stores.schedule import Schedule
from submission_manager.stores.sqlite import SqliteAttempts, SqliteIntake, SqliteSchedule
from submission_manager.stores.sqlserver import SqlServerAttempts, SqlServerIntake, SqlServerSchedule

LEASE_TABLE = "submission_manager_leases"
PACKAGE, TABLE = "submission_manager.stores", "submission_intents"
POOL_SIZE = INTAKE_LANES + 4
WRITES = 4  # as many as the executor's concurrent writes
KNOWN = "sqlite:///file.db, postgresql://user@host/db or mssql://user@host/db"

#: By dialect: how submissions are stored, how the schedule is read, how attempts are recorded.
PARTS: dict[str, tuple[type[Intake], type[Schedule], type[Attempts]]] = {
    "sqlite": (SqliteIntake, SqliteSchedule, SqliteAttempts),
    "postgres": (PostgresIntake, PostgresSchedule, Attempts),
    "sqlserver": (SqlServerIntake, SqlServerSchedule, SqlServerAttempts),
}


class Store:
    """The service's store on one database, for one event loop.

    `init` and `script` make the service's own tables, without the table of the leases.
    """

    def __init__(self, tables: OwnTables, answers: Answers) -> None:
        intake, schedule, attempts = PARTS[tables.dialect]
        self._tables = tables
        self.intake = intake(tables, answers)
        self.schedule: SchedulePort = schedule(tables.reader(), answers)
        self.attempts: AttemptPort = attempts(tables, answers)

    async def open(self) -> None:
        await self._tables.open()

    async def init(self) -> list[str]:
        return await self._tables.init()

    def script(self) -> str:
        """Return the SQL that `init` runs, as text; opens no connection."""
        return self._tables.script()

    async def close(self) -> None:
        await self.intake.close()
        await self._tables.close()


def kind_of(url: str) -> str:
    """Return the URL's scheme.

    Raises ConfigurationError if it is no URL; the hint names the service's databases only.
    """
    try:
        return scheme(url)
    except ConfigurationError as error:
        raise ConfigurationError(error.message, hint=f"Use {KNOWN}.", code=error.code) from None


def open_store(
    url: str, durable: Durability | None = None, facts: FactSink | None = None, answers: Answers | None = None
) -> Store:
    """Return the store for the database at `url`, not yet open.

    Raises ConfigurationError for a wrong URL, without showing its password. The leases are in the same database:
    `fencehold.connect(url, table=LEASE_TABLE)`, with the same `durable`. `answers` records whether the database
    answers.
    """
    kind = kind_of(url)
    if kind not in ("sqlite", "postgresql", "mssql"):
        raise ConfigurationError(f"The service has no store for {kind!r}.", hint=f"Use {KNOWN}.", code="bad_url")
    tables = own_tables(
        url, PACKAGE, TABLE, connections=POOL_SIZE, fenced_connections=WRITES, durable=durable, facts=facts
    )
    return Store(tables, answers or Answers())
