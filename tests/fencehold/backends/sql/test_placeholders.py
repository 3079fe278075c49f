"""The placeholders that docs/leader.md names for `tx.execute` and `guard()` are those that work."""

from __future__ import annotations

import pytest
import sqlalchemy
import sqlalchemy.orm

import fencehold
from tests.fencehold.backends.sql.test_wrong_kind_of_connection import of_driver

STYLES = {"sqlite": ("?", ":n"), "postgresql": ("%s", "%(n)s"), "mssql": ("?", "%(n)s")}


@pytest.mark.parametrize("fixture", ["sqlite_url", "postgres_url", "mssql_url"])
async def test_a_fenced_transaction_takes_positions_and_names(fixture: str, request: pytest.FixtureRequest) -> None:
    url = str(request.getfixturevalue(fixture))
    position, name = STYLES[url.partition(":")[0]]
    async with fencehold.connect(url) as store:
        await store.init()
        async with store.leader("job") as leader:
            assert await leader.wait_for_leadership(20)
            assert leader.term is not None
            async with leader.term.transaction() as tx:
                await tx.execute("CREATE TABLE placed (n int)")
                await tx.execute(f"INSERT INTO placed VALUES ({position})", (1,))
                await tx.execute(f"INSERT INTO placed VALUES ({name})", {"n": 2})
                rows = await (await tx.execute("SELECT n FROM placed ORDER BY n")).fetchall()
    assert [row[0] for row in rows] == [1, 2]


async def test_a_guard_fits_sqlalchemys_text_by_its_own_text(pg_or_sqlite_url: str) -> None:
    engine = sqlalchemy.create_engine(of_driver(pg_or_sqlite_url, "pysqlite"))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE guarded (id int, status text)"))
        connection.execute(sqlalchemy.text("INSERT INTO guarded VALUES (7, 'new')"))
    async with fencehold.connect(pg_or_sqlite_url) as store:
        await store.init()
        async with store.leader("job") as leader:
            assert await leader.wait_for_leadership(20)
            assert leader.term is not None
            guard = leader.term.guard()
            statement = f"UPDATE guarded SET status = 'sent' WHERE id = :id AND {guard.text}"
            with sqlalchemy.orm.Session(engine) as session, session.begin():
                guard.check(session.execute(sqlalchemy.text(statement), {"id": 7, **guard.params}))
    with engine.begin() as connection:
        assert connection.execute(sqlalchemy.text("SELECT status FROM guarded")).scalar_one() == "sent"
    engine.dispose()
