"""An instance that could not record what it sends does not send it, and says what it lacks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from fencehold import ConfigurationError, FenceholdError, Unavailable
from fencehold.testing.simulation import virtual_loop
from submission_manager.cli.sql import script
from submission_manager.instance import Instance
from submission_manager.leadership.reading import FITNESS_EVERY_S
from submission_manager.registry.registry import parse
from submission_manager.settings import settings
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.servers.roles import Role
from tests.submission_manager.cli.test_cli import run
from tests.submission_manager.executor.scene import Scene
from tests.submission_manager.http.parts import REGISTRY, Facts, until
from tests.submission_manager.instance.test_instance import gateway, instance, read, submit
from tests.submission_manager.stores.scene import scene

RIGHTS = [
    ("INSERT", "submission_attempts"), ("INSERT", "submission_intents"), ("UPDATE", "submission_intents"),
]  # fmt: skip
PAGE = Path(__file__).parents[2] / "docs" / "submission-manager.md"


@pytest.fixture
def clerk(postgres_url: str) -> Iterator[Role]:
    role = Role(postgres_url, "submission_clerk_3")
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(script("postgresql").encode())
    role.may_use_all_tables()
    try:
        yield role
    finally:
        role.drop()


# At the start


@pytest.mark.parametrize(("right", "table"), RIGHTS)
async def test_without_a_right_it_does_not_start_and_names_it(clerk: Role, right: str, table: str):
    clerk.owner_says(f"REVOKE {right} ON {table} FROM {{}}")
    with pytest.raises(ConfigurationError) as caught:
        await started(clerk.url)
    assert (caught.value.code, f"{right} on {table}" in caught.value.message) == ("no_permission", True)


async def test_with_another_lease_name_than_the_tables_have_it_does_not_start(sqlite_url: str, tmp_path: Path):
    async with gateway() as (url, _), instance(sqlite_url, url, "sm-1"):
        pass
    registry = tmp_path / "registry.json"
    registry.write_text(REGISTRY)
    answer = run(
        "serve", "--registry", str(registry), "--port", "0", SM_DATABASE=sqlite_url, SM_LEASE_NAME="typo"
    )  # fmt: skip
    assert answer.returncode == 78
    assert all(word in answer.stderr for word in ("[other_lease]", "submission-manager-executor", "typo"))


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_the_name_of_the_lease_is_changed_as_the_page_says_and_the_epoch_goes_on(
    database: str, request: pytest.FixtureRequest
):
    address = str(request.getfixturevalue(f"{database}_url"))
    async with gateway() as (url, _):
        async with instance(address, url, "sm-1") as one:
            await until(lambda: one.leader.is_leader)
        async with scene(address) as at:
            text = PAGE.read_text("utf-8").partition("### One lease for one database")[2]
            for statement in re.findall(r"^```sql\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)[0].split(";\n"):
                at.sql(statement.rstrip(";"))
        with pytest.raises(ConfigurationError) as caught:
            await started(address)
        assert caught.value.code == "other_lease"
        async with instance(address, url, "sm-1", lease_name="new-name") as one:
            await until(lambda: one.leader.is_leader)
            assert one.leader.term is not None
            assert one.leader.term.epoch == 2


async def test_tables_of_the_version_before_are_upgraded_and_keep_their_lease_or_without_leave_to_are_named(sqlite_url):
    async with gateway() as (url, _):
        async with instance(sqlite_url, url, "sm-1") as one:
            await until(lambda: one.leader.is_leader)
        async with scene(sqlite_url) as at:
            at.sql("DROP TABLE submission_owner")
            at.sql("DELETE FROM fencehold_schema WHERE step = '0002_owner'")
        with pytest.raises(ConfigurationError) as caught:
            await started(sqlite_url)
        assert (caught.value.code, "submission_owner" in caught.value.message) == ("schema_missing", True)
        with pytest.raises(ConfigurationError) as caught:
            await instance(sqlite_url, url, "sm-2", lease_name="typo").__aenter__()
        assert caught.value.code == "other_lease", "also if it is the first to come"
        async with instance(sqlite_url, url, "sm-1") as one:
            await until(lambda: one.leader.is_leader)


async def started(database: str) -> None:
    chosen = settings({"database": database, "registry": "-", "port": 0})
    async with Instance(chosen, parse(REGISTRY), Facts(), creates_tables=False):
        return


# When a term begins, and in it


@pytest.mark.parametrize("retry_on_error", [False, True], ids=["drop", "retry"])
@pytest.mark.parametrize("lacks", ["rights", "missing", "owned_by"])
def test_an_instance_that_lacks_something_calls_nobody_says_what_and_goes_on_when_it_has_it(
    lacks: str, retry_on_error: bool
) -> None:
    async def run() -> None:
        scene = Scene()
        found = "another" if lacks == "owned_by" else ["INSERT on submission_attempts"]
        setattr(scene.table, lacks, found)
        scene.table.submit("x")
        one = await scene.instance(retry_on_error=retry_on_error)
        one.run = asyncio.create_task(one.leadership.run())
        await scene.until(lambda: one.leadership.misfit is not None)
        await asyncio.sleep(100)
        assert (one.gateway.calls, scene.table.starts) == ([], [])
        assert ("another" if lacks == "owned_by" else "INSERT on submission_attempts") in str(one.leadership.misfit)
        setattr(scene.table, lacks, None if lacks == "owned_by" else [])
        await scene.until(lambda: scene.are_over("x"), limit_s=62)

    virtual_loop.run(run)


@virtual
async def test_a_right_that_is_lost_while_it_leads_is_noticed_before_the_next_message_is_sent() -> None:
    scene = Scene()
    one = await (await scene.instance()).start()
    await one.leads()
    scene.table.rights = ["INSERT on submission_attempts"]
    await asyncio.sleep(FITNESS_EVERY_S + 1)
    scene.table.submit("x")
    await asyncio.sleep(30)
    assert one.gateway.calls == []
    assert "INSERT on submission_attempts" in str(one.leadership.misfit)


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (ConfigurationError("a password is being changed", code="login_refused"), False),
        (Unavailable("down"), False),
        (ConfigurationError("permission denied for table fencehold_schema", code="no_permission"), True),
    ],
    ids=["login", "down", "right"],
)
def test_a_look_without_an_answer_ends_no_term_and_a_refusal_does(error: FenceholdError, ends: bool) -> None:
    async def run() -> None:
        scene = Scene()
        one = await (await scene.instance()).start()
        await one.leads()
        scene.table.failing["fitness"] = error
        await asyncio.sleep(2 * FITNESS_EVERY_S + 1)
        assert (one.leadership.misfit is error, one.leader.is_leader) == (ends, not ends)
        assert "internal_error" not in one.facts.names()

    virtual_loop.run(run)


async def test_a_table_that_was_renamed_before_a_term_is_named_and_no_message_is_sent(clerk: Role):
    facts = Facts()
    times = {"lease_duration": "3s", "renew_interval": "1s", "acquire_interval": "1s"}
    async with gateway() as (url, app), instance(clerk.url, url, "sm-1", facts, **times) as one:
        await until(lambda: one.leader.is_leader)
        clerk.owner_says("ALTER TABLE submission_attempts RENAME TO elsewhere")
        assert one.leader.term is not None
        one.leader.term.lost("test")  # and the next term begins without it
        await until(lambda: any(event == "leadership_paused" for event, _ in facts.told))
        await submit(one, "a", query="")
        answer = await read(one, "/readyz")
        assert "submission_attempts" in answer.text
        clerk.owner_says("ALTER TABLE elsewhere RENAME TO submission_attempts")
        assert app.calls.by_key == {}
        await until(lambda: app.calls.by_key == {"a/1": 1})
