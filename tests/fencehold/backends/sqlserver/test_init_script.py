"""What `fencehold sql init --dialect mssql` prints: it makes what init makes, and its GRANTs are enough, no more."""

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import mssql_python
import pytest

import fencehold
from fencehold.cli.sql.command import _script
from tests.servers.sqlserver import SqlServer, drop_all, open_connection
from tests.tidy.tsql import batches, parsed

#: Everything that makes two schemas differ: columns, keys and indexes, defaults and checks, triggers and sequences.
CATALOGUE = (
    """SELECT o.name, c.name, t.name, c.max_length, c.is_nullable, c.collation_name, c.is_identity
         FROM sys.columns AS c JOIN sys.tables AS o ON o.object_id = c.object_id
         JOIN sys.types AS t ON t.user_type_id = c.user_type_id""",
    """SELECT o.name, i.name, i.type_desc, i.is_unique, i.is_primary_key
         FROM sys.indexes AS i JOIN sys.tables AS o ON o.object_id = i.object_id""",
    """SELECT CASE WHEN type = 'D' THEN '' ELSE name END, RTRIM(type), OBJECT_NAME(parent_object_id)
         FROM sys.objects WHERE type IN ('C', 'D', 'F', 'SO', 'TR')""",
)


def applied(url: str, script: str) -> None:
    with contextlib.closing(open_connection(url)) as connection:
        for batch in batches(script):
            connection.cursor().execute(batch)


def catalogue(url: str) -> list[list[Any]]:
    with contextlib.closing(open_connection(url)) as connection:
        return [sorted(map(repr, connection.cursor().execute(query).fetchall())) for query in CATALOGUE]


async def initialised(url: str, outbox: str, table: str = "fencehold_leases") -> list[str]:
    async with fencehold.connect(url, table=table) as store:
        store.outbox(outbox), store.items("any")
        return await store.init()


@pytest.fixture
def clerk(mssql_url: str) -> Iterator[Callable[[str], str]]:
    """`clerk(script)` is the address for a user who has exactly the rights that the script prints."""
    name, password = f"clerk_{uuid.uuid4().hex[:8]}", f"Aa1-{uuid.uuid4().hex}"
    with contextlib.closing(open_connection(mssql_url)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE LOGIN {name} WITH PASSWORD = '{password}'")
        cursor.execute(f"CREATE USER {name} FOR LOGIN {name}")

        def with_rights(script: str) -> str:
            for grant in re.findall(r"^-- (GRANT .* TO) app;$", script, re.MULTILINE):
                cursor.execute(f"{grant} {name}")
            place = urlsplit(mssql_url)
            return place._replace(netloc=f"{name}:{password}@{place.netloc.rpartition('@')[2]}").geturl()

        try:
            yield with_rights
        finally:
            drop_all(connection)  # with the rights on them, which would keep the user
            cursor.execute(f"DROP USER {name}")
            with contextlib.suppress(mssql_python.Error):  # still connected: it owns nothing, and goes with the server
                cursor.execute(f"DROP LOGIN {name}")


def test_all_of_the_script_is_tsql_and_after_a_batch_that_failed_the_rest_does_nothing() -> None:
    script = _script("mssql", "fencehold_leases", ["outbox", "orders"], with_items=True)
    found = batches(script)
    assert all(parsed(batch) for batch in found if not batch.lstrip().startswith("-- "))
    assert sum("COMMIT TRANSACTION" in batch for batch in found) == 4
    changing = [
        place for place, batch in enumerate(found) if re.search(r"^(CREATE|ALTER|INSERT)\b", batch, re.MULTILINE)
    ]
    assert len(changing) > 10
    assert all("SET NOEXEC ON" in found[place + 1] for place in changing)


def test_the_grants_never_let_a_lease_be_deleted() -> None:
    script = _script("mssql", "ops.leases", ["ops.orders"], with_items=True)
    grants = {table: rights for rights, table in re.findall(r"^-- GRANT (.*) ON (\S+) TO app;$", script, re.MULTILINE)}
    assert grants == {
        "[ops].[leases]": "SELECT, INSERT, UPDATE",
        "[ops].[leases_terms]": "SELECT, INSERT, UPDATE",
        "[ops].[fencehold_items]": "SELECT, INSERT, UPDATE, DELETE",
        "[ops].[fencehold_items_token]": "UPDATE",
        "[ops].[orders]": "SELECT, INSERT, UPDATE",
        "[ops].[orders_reaper]": "SELECT, INSERT, UPDATE",
        "[ops].[orders_consumed]": "SELECT, INSERT",
        "[ops].[fencehold_schema]": "SELECT",
    }


async def test_the_printed_script_makes_what_init_makes(mssql_url: str, mssql_server: SqlServer) -> None:
    applied(mssql_url, _script("mssql", "fencehold_leases", ["orders"], with_items=True))
    assert await initialised(mssql_url, "orders") == []
    other = mssql_server.fresh_database()
    assert await initialised(other, "orders")
    assert catalogue(mssql_url) == catalogue(other)


async def test_a_user_with_the_printed_grants_can_do_everything(mssql_url: str, clerk: Callable[[str], str]) -> None:
    script = _script("mssql", "fencehold_leases", ["orders"], with_items=True)
    applied(mssql_url, script)
    url = clerk(script)
    assert await initialised(url, "orders") == []
    async with fencehold.connect(url) as store:
        async with store.leader("job", lease=30) as leader:
            assert await leader.wait_for_leadership(20)
            assert leader.term is not None
            async with leader.term.transaction() as tx:
                await tx.execute("SELECT 1 AS one")
        items = store.items("deal")
        await items.put("7", state="NEW", document={})
        [item] = await items.next_for_state("NEW")
        await items.delete(item)
        outbox = store.outbox("orders")
        await outbox.add("order.created", {"id": 7})
        [claim] = await outbox.claim(1, "me")
        assert await outbox.complete([claim])
        assert await outbox.reap() == []
    with contextlib.closing(open_connection(url)) as connection, pytest.raises(mssql_python.Error):
        connection.cursor().execute("DELETE FROM fencehold_leases")


async def test_a_user_with_rights_on_leases_alone_finds_everything_up_to_date(
    mssql_url: str, clerk: Callable[[str], str]
) -> None:
    applied(mssql_url, script := _script("mssql", "fencehold_leases", ["orders"], with_items=True))
    leases = [line for line in script.splitlines() if "fencehold_leases" in line or "fencehold_schema" in line]
    assert await initialised(clerk("\n".join(leases)), "orders") == []


async def test_a_user_who_may_not_create_hears_who_must(clerk: Callable[[str], str]) -> None:
    with pytest.raises(fencehold.ConfigurationError) as caught:
        await initialised(clerk(""), "orders")
    assert caught.value.code == "no_permission"
    assert "owns the schema must run `fencehold init`" in caught.value.hint
