"""Roles need no right that they did not have before an upgrade, to fence and to add events in their transactions."""

import uuid

import psycopg

import fencehold
from tests.across_packages.upgrading import old_tables

#: Given before the upgrade, and the least that worked then: one role fences, another only adds events.
FENCING, PRODUCING = "old_fencer", "old_producer"
OLD_RIGHTS = (
    f"GRANT SELECT, UPDATE ON fencehold_leases TO {FENCING}",
    f"GRANT SELECT, INSERT ON outbox TO {PRODUCING}",
    f"GRANT SELECT, INSERT ON outbox_consumed TO {PRODUCING}",
)


async def test_roles_with_the_rights_of_before_fence_and_add_events_after_an_upgrade(postgres_url: str) -> None:
    old_tables.make(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute("ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM public")
        owner.execute("ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM public")
        for role in (FENCING, PRODUCING):
            owner.execute(f"DROP ROLE IF EXISTS {role}".encode())
            owner.execute(f"CREATE ROLE {role}".encode())
        try:
            for grant in OLD_RIGHTS:
                owner.execute(grant.encode())
            await fence_and_add(postgres_url)
        finally:
            for role in (FENCING, PRODUCING):
                owner.execute(f"DROP OWNED BY {role}".encode())
                owner.execute(f"DROP ROLE {role}".encode())


async def fence_and_add(url: str) -> None:
    async with fencehold.connect(url) as store:
        await store.init()
        outbox = store.outbox()
        async with store.leader("job", lease=30) as leader:
            assert await leader.wait_for_leadership(20)
            assert leader.term is not None
            async with await psycopg.AsyncConnection.connect(url) as tx:
                await tx.execute(f"SET ROLE {FENCING}".encode())
                await leader.term.fence(tx)
                await tx.execute(f"SET ROLE {PRODUCING}".encode())
                await outbox.add("order.paid", {}, tx=tx)
                assert await outbox.first_time(uuid.uuid4(), "mail", tx=tx)
