"""The service's tables by hand: what `sql init` prints is enough, and the service's advice is its own."""

import contextlib
import logging
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from fencehold import Unavailable
from fencehold.backends.sqlite.leases import SqliteLeases
from fencehold.telemetry.logs import level_of
from submission_manager.cli.serve import LEVELS
from submission_manager.cli.sql import script
from submission_manager.lease_facts import FewerLines
from submission_manager.own_words import HINTS, own_hint, own_text
from submission_manager.stores.opening import LEASE_TABLE
from submission_manager.stores.sqlite import SqliteSchedule
from tests.servers.roles import Role
from tests.submission_manager.cli.test_cli import run
from tests.submission_manager.http.parts import Facts, until
from tests.submission_manager.instance.test_instance import gateway, instance, read, submit
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
        "submission_attempts": "SELECT, INSERT", "submission_owner": "SELECT, INSERT",
    }  # fmt: skip


def test_without_a_dialect_and_without_a_database_none_is_guessed():
    answer = run("sql", "init")
    assert (answer.returncode, answer.stdout) == (78, "")
    assert "[no_dialect]" in answer.stderr
    assert "postgresql" not in run("sql", "init", SM_DATABASE="mssql://any/any").stdout


@pytest.mark.parametrize("url", ["orders.db", "cosmos:any", "postgres"])
def test_what_is_no_url_is_answered_with_the_databases_of_the_service_and_no_other(url: str):
    answer = run("sql", "init", SM_DATABASE=url)
    assert (answer.returncode, answer.stdout) == (78, "")
    assert "[bad_url]" in answer.stderr
    assert "sqlite:///file.db, postgresql://user@host/db or mssql://user@host/db" in answer.stderr
    assert "cosmos://" not in answer.stderr


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


async def test_a_right_that_is_lost_at_run_time_is_named_by_readyz_and_the_instance_stays_in_rotation(clerk: Role):
    facts = Facts()
    with psycopg.connect(clerk.owner_url, autocommit=True) as owner:
        owner.execute(script("postgresql").encode())
    clerk.may_use_all_tables()
    async with gateway() as (url, app), instance(clerk.url, url, "sm-1", facts) as one:
        await until(lambda: one.leader.is_leader)
        clerk.owner_says("REVOKE INSERT ON submission_attempts FROM {}")
        await submit(one, "a", query="")
        await until(lambda: any(event == "leader_lost" for event, _ in facts.told))
        answer = await read(one, "/readyz")
        assert answer.status_code == 200
        assert "cannot_lead=[no_permission]" in answer.text
        assert "submission_attempts" in answer.text
        clerk.owner_says("GRANT INSERT ON submission_attempts TO {}")
        # Its lease is kept while it knows an outcome that is not on record: so nobody sends the message again.
        assert (await submit(one, "a"))["status"] == "accepted"
        assert app.calls.by_key == {"a/1": 1}


async def test_a_right_on_the_lease_that_is_lost_is_named_too_until_it_is_given_back(clerk: Role, monkeypatch):
    # The leader's own look for its rights may be first to find out: then it is named until it has led for so long.
    monkeypatch.setattr("submission_manager.leadership.leadership.MISFIT_PAUSE_MAX_S", 0.2)
    with psycopg.connect(clerk.owner_url, autocommit=True) as owner:
        owner.execute(script("postgresql").encode())
    clerk.may_use_all_tables()
    times = {"lease_duration": "2s", "renew_interval": "300ms", "acquire_interval": "100ms"}
    async with gateway() as (url, _), instance(clerk.url, url, "sm-1", Facts(), **times) as one:
        await until(lambda: one.leader.is_leader)
        clerk.owner_says(f"REVOKE UPDATE ON {LEASE_TABLE} FROM {{}}")
        await until(lambda: one._lease_trouble.newest is not None)
        answer = await read(one, "/readyz")
        assert (answer.status_code, "cannot_lead=[no_permission]" in answer.text) == (200, True)
        assert LEASE_TABLE in answer.text
        clerk.owner_says(f"GRANT UPDATE ON {LEASE_TABLE} TO {{}}")
        await until(lambda: one.leader.is_leader)
        await until(lambda: one.app.cannot_lead() is None)  # at its next look
        assert "cannot_lead" not in (await read(one, "/readyz")).text


def missing(facts: Facts) -> list[str]:
    texts = [str(fields.get("sql_error")) for _, fields in facts.told]
    return [text for text in texts if "[schema_missing]" in text]


def test_a_term_is_told_as_lost_once_also_when_its_lease_could_not_be_given_back():
    facts = Facts()
    sink = FewerLines(facts)
    for epoch in (3, 4):
        sink.fact("leader_lost", lease_name="x", lease_epoch=epoch, reason="sql_error")
        sink.fact("leader_release_failed", lease_name="x", lease_epoch=epoch)
        sink.fact("leader_lost", lease_name="x", lease_epoch=epoch, reason="release_not_confirmed")
    told = [(event, fields["lease_epoch"], fields.get("reason")) for event, fields in facts.told]
    assert told == [
        ("leader_lost", 3, "sql_error"), ("leader_release_failed", 3, None),
        ("leader_lost", 4, "sql_error"), ("leader_release_failed", 4, None),
    ]  # fmt: skip


def test_of_the_renewals_of_a_term_the_log_has_the_first_and_one_after_failures():
    facts = Facts()
    sink = FewerLines(facts)
    for epoch in (3, 3, 4, 4):
        sink.fact("leader_renewed", lease_name="x", lease_epoch=epoch)
    sink.fact("leader_renewed", lease_name="x", lease_epoch=4, failures=2)
    levels = [level_of(event, fields, LEVELS) for event, fields in facts.told]
    assert levels == [logging.INFO, logging.DEBUG, logging.INFO, logging.DEBUG, logging.INFO]


def test_of_tries_to_acquire_that_fail_alike_the_log_has_one_a_minute():
    facts, now_s = Facts(), [100.0]
    sink = FewerLines(facts, lambda: now_s[0])
    for _ in range(150):
        sink.fact("leader_acquire_failed", lease_name="x", sql_error="[unreachable] gone: try " + str(now_s[0]))
        now_s[0] += 0.5
    sink.fact("leader_acquire_failed", lease_name="x", sql_error="[too_many_connections] full")
    sink.fact("leader_acquire_failed", lease_name="x", held_by="another")
    lines = [fields for _, fields in facts.told if not fields.get("is_repeat")]
    assert [str(fields.get("sql_error"))[:13] for fields in lines] == ["[unreachable]"] * 2 + ["[too_many_con", "None"]


async def test_a_database_that_fails_the_leader_and_then_its_release_is_one_loss_in_the_log(sqlite_url, monkeypatch):
    async def fails(*_: object) -> None:
        raise Unavailable("down")

    facts = Facts()
    async with gateway() as (url, _), instance(sqlite_url, url, "sm-1", facts) as one:
        await until(lambda: one.leader.is_leader)
        monkeypatch.setattr(SqliteLeases, "release", fails)
        monkeypatch.setattr(SqliteSchedule, "refresh", fails)
        await until(lambda: any(event == "leader_release_failed" for event, _ in facts.told))
        monkeypatch.undo()
    assert [fields["reason"] for event, fields in facts.told if event == "leader_lost"] == ["sql_error"]


def test_only_advice_that_would_name_another_program_is_replaced():
    assert (
        own_text("[schema_missing] No a. Run `fencehold init` (b).")
        == f"[schema_missing] No a. {HINTS['schema_missing']}"
    )
    assert own_text("[no_answer] It hung. Wait.") == "[no_answer] It hung. Wait."
    assert own_text("without a code, `fencehold init`") == "without a code, `fencehold init`"
    assert own_hint("login_refused", "Check user and password.") == "Check user and password."
    assert own_hint("schema_old", "`await store.init()`") == HINTS["schema_old"]


def test_where_fencehold_doctor_helps_the_whole_command_is_given():
    whole = f'`FENCEHOLD_DSN="$SM_DATABASE" fencehold doctor --table {LEASE_TABLE}` shows it.'
    assert own_text("[canceled] Too slow. `fencehold doctor` shows it.") == f"[canceled] Too slow. {whole}"
    assert own_hint("canceled", "`fencehold doctor` shows it.") == whole


def test_the_last_words_of_a_service_without_tables_name_its_own_command(sqlite_url: str, tmp_path: Path):
    registry = Path(__file__).parents[2] / "deploy" / "registry.json"
    answer = run("serve", "--no-init", "--port", "0", "--registry", str(registry), SM_DATABASE=sqlite_url)
    assert answer.returncode == 78
    assert "submission-manager sql init" in answer.stderr
    assert "fencehold init" not in answer.stderr
