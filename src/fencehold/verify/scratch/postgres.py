"""The scratch place of a run on PostgreSQL: a schema of the run's own in the user's database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from fencehold.backends.postgres import hosts, wire
from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable
from fencehold.ports.time_limit import fixed
from fencehold.verify.plan import CONNECTIONS_PER_CONTENDER, PREFIX, Plan
from fencehold.verify.scratch.place import counters, whole
from fencehold.verify.writer import RunStatements

T = TypeVar("T")

CONNECT_LIMIT_S = 10.0
STATEMENT_LIMIT_S = 20.0
#: So long, because a failover of the user's server may be under way when the run ends.
RETRY_FOR_S = 60.0
AGAIN_S = 0.5
SPARE_CONNECTIONS = 5  # of the parent process itself
DEFAULT_PORT = 5432


class PostgresScratch:
    dialect = "postgres"
    outbox: str
    has_locks = True

    def __init__(self, plan: Plan) -> None:
        self.schema = f"{PREFIX}{plan.mark}"
        self.lease_table = f"{self.schema}.fencehold_leases"
        self.outbox = f"{self.schema}.outbox"
        self.left: list[str] = []
        self._plan = plan
        self.url = "postgresql://" + plan.url.partition("://")[2]
        self.servers: list[tuple[str, int]] = []
        self._info = wire.conninfo(self.url)
        self._statements = RunStatements(self.dialect, self.schema)
        self._password = ""
        self._may_exist = False

    def url_through(self, ports: Sequence[int]) -> str:
        """Return the URL through proxies on these ports.

        It keeps the hosts' names: a certificate is checked against them.
        """
        given = {key: value for key, value in conninfo_to_dict(self.url).items() if key not in hosts.KEYS}
        given |= {"host": ",".join(host for host, _ in self.servers), "hostaddr": ",".join("127.0.0.1" for _ in ports)}
        given["port"] = ",".join(map(str, ports))
        if self._password:
            given["password"] = self._password
        return f"postgresql:///?{urlencode(given)}"

    async def make(self) -> None:
        connection = await wire.connect(self._info, CONNECT_LIMIT_S, autocommit=True)
        with wire.lent(connection):
            self._learn(connection)
            await self._must_have_room(connection)
            found = await self._run(connection, "left", {"schema": self.schema})
            self.left = [f"the schema {name}" for (name,) in found]
            self._may_exist = True
            await whole(self._create(connection))  # if cut off, the server could still create it after the DROP

    async def _create(self, connection: wire.Connection) -> None:
        try:
            await self._run(connection, "make")
        except psycopg.errors.InsufficientPrivilege as error:
            raise ConfigurationError(
                f"This user may not make the schema that verify needs: {error.diag.message_primary}.",
                hint="GRANT CREATE ON DATABASE ... TO this user, or run verify as one who may; it drops the schema "
                "again.",
                code="no_permission",
            ) from None

    def _learn(self, connection: wire.Connection) -> None:
        """Keep the servers' addresses and the password that libpq found: libpq finds no password for a proxy's port.

        Raises ConfigurationError for a Unix socket: there the server may trust the system about which user connects,
        and through the proxy, which every user of this machine can reach, each would connect as the present user.
        """
        self._password = connection.info.password
        for host, port, address in hosts.places(self._info):
            place = address or host or connection.info.host
            if place.startswith(("/", "@")):
                raise ConfigurationError(
                    "verify cannot go through a Unix socket: its proxy would let every user of this machine in.",
                    hint="Give the server's TCP address.",
                    code="verify_unsupported",
                )
            self.servers.append((place, int(port or connection.info.port or DEFAULT_PORT)))

    async def _must_have_room(self, connection: wire.Connection) -> None:
        needed = self._plan.contenders * CONNECTIONS_PER_CONTENDER + SPARE_CONNECTIONS
        for most, setting in await self._run(connection, "connection_limits"):
            if needed > most:
                raise ConfigurationError(
                    f"The server takes {most} connections ({setting}), and {self._plan.contenders} contenders may "
                    f"need {needed}.",
                    hint="Give fewer --contenders, or raise that limit.",
                    code="too_few_connections",
                )

    async def prepare(self) -> None:
        async def work(connection: wire.Connection) -> None:
            await self._asked(connection, self._statements.script("prepare"))
            for counter in counters(self):
                await self._run(connection, "make_counter", {"counter": counter})

        await self._with_connection(work, CONNECT_LIMIT_S)

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return await self._with_connection(lambda connection: self._run(connection, statement), RETRY_FOR_S)

    @asynccontextmanager
    async def held_up(self, counter: str) -> AsyncIterator[None]:
        connection = await wire.connect(self._info, CONNECT_LIMIT_S, autocommit=False)
        with wire.lent(connection):
            try:
                await self._run(connection, "hold", {"counter": counter})
            except psycopg.Error as error:
                raise Unavailable(f"The row of counter {counter} could not be locked: {error}") from error
            yield

    async def drop(self) -> str | None:
        if not self._may_exist:
            return None
        try:
            await self._with_connection(lambda connection: self._run(connection, "drop"), RETRY_FOR_S)
        except FenceholdError as error:
            return f"The schema {self.schema} could not be dropped ({error.message}): DROP SCHEMA {self.schema} CASCADE"
        return None

    async def _with_connection(self, work: Callable[[wire.Connection], Awaitable[T]], retry_for_s: float) -> T:
        """Run `work` on a new connection, and return its result.

        While the database does not answer, `work` is repeated for up to `retry_for_s`; then Unavailable is raised.
        Raises ConfigurationError if the database refuses `work`.
        """
        left_s = fixed(retry_for_s)
        while True:
            try:
                connection = await wire.connect(self._info, CONNECT_LIMIT_S, autocommit=True)
                with wire.lent(connection):
                    return await work(connection)
            except (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction, Unavailable) as error:
                if left_s() <= 0:
                    text = error.message if isinstance(error, FenceholdError) else str(error)
                    raise Unavailable(f"The database did not answer for {retry_for_s:g} s: {text}") from error
                await asyncio.sleep(AGAIN_S)
            except psycopg.Error as error:
                raise ConfigurationError(f"The database refused what verify needs: {error}.", code="refused") from error

    async def _run(self, connection: wire.Connection, name: str, params: dict[str, Any] | None = None) -> Any:
        return await self._asked(connection, self._statements[name], params or {})

    async def _asked(
        self, connection: wire.Connection, text: str, params: dict[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        work = connection.execute(text.encode(), params)
        cursor = await wire.bounded(connection, work, fixed(STATEMENT_LIMIT_S))
        return await cursor.fetchall() if cursor.description else []
