"""The service's tables by hand: what `sql init` prints is enough, and the service's advice is its own."""

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from submission_manager.cli.sql import script
from submission_manager.own_words import HINTS, own_hint, own_text
from submission_manager.stores.opening import LEASE_TABLE
from tests.servers.roles import Role
from tests.submission_manager.http_parts import Facts, until
from tests.submission_manager.test_cli import run
from tests.submission_manager.test_http_instance import gateway, instance, submit
from tests.tidy.tsql import batches, parsed

GRANT = re.compile(r"^-- (GRANT .* TO) app;$", re.MULTILINE)


@pytest.fixture
def clerk(postgres_url: str) -> Iterator[Role]:
    """Owns nothing, and may create nothing."""
    role = Role(postgres_url, "submission_clerk")
    role.owner_says("REVOKE CREATE ON SCHEMA public FROM public")
    try:
        yield role
    finally:
        role.drop()


@pytest.mark.parametrize("creates_tables", [True, False])
async def test_with_what_sql_init_prints_and_its_grants_alone_an_instance_delivers(clerk: Role, creates_tables: bool):
    text = run("sql", "init", "--dialect", "postgres").stdout
    with psycopg.connect(clerk.owner_url, autocommit=True) as owner:
        owner.execute(text.encode())
        owner.execute(text.encode())  # safe to repeat
        for grant in GRANT.findall(text):
            owner.execute(f"{grant} {clerk.name}".encode())
    facts = Facts()
    async with gateway() as (url, _):
        one = instance(clerk.url, url, "sm-1", facts)
        one._creates_tables = creates_tables
        async with one:
            assert (await submit(one, "x"))["status"] == "accepted"
    assert [event for event, fields in facts.told if fields.get("sql_error")] == []


async def test_what_sql_init_prints_for_sqlite_makes_a_file_that_serve_takes(tmp_path: Path):
    path = tmp_path / "service.db"
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.executescript(run("sql", "init", SM_DATABASE=f"sqlite:///{path}").stdout)
    async with gateway() as (url, _):
        one = instance(f"sqlite:///{path}", url, "sm-1")
        one._creates_tables = False
        async with one:
            assert (await submit(one, "x"))["status"] == "accepted"


def test_what_sql_init_prints_for_sql_server_is_tsql_with_the_rights_that_the_page_names():
    text = script("mssql")
    assert all(parsed(batch) for batch in batches(text) if not batch.lstrip().startswith("-- "))
    rights = {
        table.strip("[]"): granted for granted, table in re.findall(r"^-- GRANT (.*) ON (\S+) TO", text, re.MULTILINE)
    }
    assert rights == {
        LEASE_TABLE: "SELECT, INSERT, UPDATE", f"{LEASE_TABLE}_terms": "SELECT, INSERT, UPDATE",
        "fencehold_schema": "SELECT", "submission_intents": "SELECT, INSERT, UPDATE",
        "submission_attempts": "SELECT, INSERT",
    }  # fmt: skip


def test_without_a_dialect_and_without_a_database_none_is_guessed():
    answer = run("sql", "init")
    assert (answer.returncode, answer.stdout) == (78, "")
    assert "[no_dialect]" in answer.stderr
    assert "postgresql" not in run("sql", "init", SM_DATABASE="mssql://any/any").stdout


@pytest.mark.parametrize("table", ["submission_intents", LEASE_TABLE])
async def test_a_running_service_whose_table_is_gone_advises_its_own_command(sqlite_url: str, table: str):
    facts = Facts()
    async with gateway() as (url, _):
        times = {"lease_duration": "2s", "renew_interval": "300ms", "acquire_interval": "100ms"}
        async with instance(sqlite_url, url, "sm-1", facts, **times) as one:
            await until(lambda: one.leader.is_leader)
            with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as file:
                file.execute(f"ALTER TABLE {table} RENAME TO elsewhere")
            await until(lambda: bool(missing(facts)))
            assert all(text.endswith(HINTS["schema_missing"]) for text in missing(facts))
            assert "fencehold init" not in str(facts.told)
            with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as file:
                file.execute(f"ALTER TABLE elsewhere RENAME TO {table}")


def missing(facts: Facts) -> list[str]:
    texts = [str(fields.get("sql_error")) for _, fields in facts.told]
    return [text for text in texts if "[schema_missing]" in text]


def test_only_advice_that_would_name_another_program_is_replaced():
    assert (
        own_text("[schema_missing] No a. Run `fencehold init` (b).")
        == f"[schema_missing] No a. {HINTS['schema_missing']}"
    )
    assert own_text("[no_answer] It hung. Wait.") == "[no_answer] It hung. Wait."
    assert own_text("without a code, `fencehold init`") == "without a code, `fencehold init`"
    assert own_hint("login_refused", "Check user and password.") == "Check user and password."
    assert own_hint("schema_old", "`await store.init()`") == HINTS["schema_old"]


def test_the_last_words_of_a_service_without_tables_name_its_own_command(sqlite_url: str, tmp_path: Path):
    registry = Path(__file__).parents[2] / "deploy" / "registry.json"
    answer = run("serve", "--no-init", "--port", "0", "--registry", str(registry), SM_DATABASE=sqlite_url)
    assert answer.returncode == 78
    assert "submission-manager sql init" in answer.stderr
    assert "fencehold init" not in answer.stderr
