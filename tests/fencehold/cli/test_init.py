"""`fencehold init`: leases alone unless told, and an upgrade of whatever is there; `doctor` misses nothing else."""

import contextlib
import sqlite3

import psycopg
import pytest

from fencehold.connect import scheme
from tests.across_packages.upgrading import old_tables
from tests.across_packages.upgrading.test_old_tables import run
from tests.fencehold.cli.cli_process import error_of, prepare
from tests.fencehold.cli.outbox_scene import with_outbox
from tests.servers.roles import Role

TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename",
}


@pytest.fixture(params=["sqlite", "postgres"])
def new_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


def tables(url: str) -> list[str]:
    return [str(row[0]) for row in run(url, TABLES[scheme(url)])]


def test_init_makes_leases_alone_and_doctor_misses_nothing(new_url, cli):
    steps = ["0001_leases", "0002_lease_id"] + ["0003_grant_timeline"] * new_url.startswith("postgresql")
    file = new_url.removeprefix("sqlite:///") if new_url.startswith("sqlite") else None
    assert cli(new_url, "init").json == {
        "table": "fencehold_leases", "outboxes": [], "items": False, "applied": steps,
        "up_to_date": False, "file": file, "file_made": file is not None,
    }  # fmt: skip
    assert tables(new_url) == ["fencehold_leases", "fencehold_schema"]
    doctor = cli(new_url, "doctor")
    assert (doctor.code, doctor.json["healthy"]) == (0, True)
    assert "NO REAPER" not in doctor.out


def test_items_are_made_when_told_and_stay_known(new_url, cli):
    assert "0001_items" in cli(new_url, "init", "--items").json["applied"]
    again = cli(new_url, "init").json
    assert (again["items"], again["up_to_date"]) == (True, True)
    assert cli(new_url, "items", "ls").json == {"items": []}


def test_init_upgrades_the_outbox_and_items_that_are_there_without_being_told(new_url, cli):
    old_tables.make(new_url)
    done = cli(new_url, "init").json
    assert (done["outboxes"], done["items"]) == (["outbox"], True)
    assert "0002_lease_id" in done["applied"]
    assert ("0002_identity" in done["applied"]) == new_url.startswith("postgresql")
    doctor = cli(new_url, "doctor").json["checks"]
    assert {one["check"]: one["state"] for one in doctor if one["check"] in ("tables", "items", "lease table")} == {
        "lease table": "ok", "items": "ok", "tables": "ok",
    }  # fmt: skip


def test_an_outbox_that_was_dropped_is_neither_made_again_nor_missed(new_url, cli):
    assert cli(new_url, "init", "--outbox", "orders").code == 0
    for table in tables(new_url):
        if table.startswith("orders"):
            run(new_url, f"DROP TABLE {table}")
    assert cli(new_url, "init").json["outboxes"] == []
    assert cli(new_url, "doctor").code == 0
    assert cli(new_url, "init", "--outbox", "orders").json["up_to_date"] is False


def test_doctor_looks_at_every_outbox_that_is_there(new_url, cli):
    assert cli(new_url, "init", "--outbox", "orders", "--outbox", "billing").code == 0
    with_outbox(new_url, lambda outbox: outbox.reap(), name="billing")
    answer = cli(new_url, "doctor")
    assert answer.code == 1
    reapers = {one["outbox"]: one["state"] for one in answer.json["checks"] if one["check"] == "reaper"}
    assert reapers == {"billing": "ok", "orders": "error"}


def test_init_finds_the_outboxes_of_both_schemas_when_the_leases_have_one_of_their_own(postgres_url, cli):
    run(postgres_url, "CREATE SCHEMA ops")
    names = ["--outbox", "ops.orders", "--outbox", "billing"]
    assert cli(postgres_url, "--table", "ops.leases", "init", *names, "--items").code == 0
    again = cli(postgres_url, "--table", "ops.leases", "init").json
    assert (again["outboxes"], again["items"], again["up_to_date"]) == (["billing", "ops.orders"], True, True)
    others = cli(postgres_url, "init").json
    assert (others["outboxes"], others["items"]) == (["billing"], False)


def test_doctor_without_the_right_to_read_the_record_says_so_and_looks_at_the_default_outbox(postgres_url, cli):
    prepare(postgres_url)
    with_outbox(postgres_url, lambda outbox: outbox.reap())
    role = Role(postgres_url, f"clerk_{psycopg.conninfo.conninfo_to_dict(postgres_url)['dbname']}")
    try:
        role.may_use_all_tables()
        role.owner_says("GRANT DELETE ON fencehold_items TO {}")
        role.owner_says("REVOKE ALL ON fencehold_schema FROM {}")
        checks = {(one["check"], one["outbox"]): one["state"] for one in cli(role.url, "doctor").json["checks"]}
        assert checks["outboxes", None] == "skipped"
        assert checks["tables", "outbox"] == "ok"
    finally:
        role.drop()


def test_the_printed_sql_is_of_leases_alone_unless_told(cli):
    for dialect in ("sqlite", "postgres", "mssql"):
        printed = cli(None, "sql", "init", "--dialect", dialect).json
        assert (printed["outboxes"], printed["items"]) == ([], False)
        assert "reaper" not in printed["sql"]
        assert "fencehold_items" not in printed["sql"]
        told = cli(None, "sql", "init", "--dialect", dialect, "--outbox", "orders", "--items").json["sql"]
        assert ("orders_reaper" in told, "fencehold_items" in told) == (True, True)


def test_init_in_a_new_file_beside_a_table_of_somebody_elses(sqlite_url, cli):
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("CREATE TABLE outbox (mine TEXT)")
    assert cli(sqlite_url, "init").json["outboxes"] == []
    assert cli(sqlite_url, "init", "--outbox", "outbox").error["code"] == "table_exists"


def test_a_name_that_sqlite_keeps_for_itself_is_a_mistake_before_anything_is_made(tmp_path, cli):
    for words in (
        ["init", "--outbox", "sqlite_x"],
        ["--table", "sqlite_x", "init"],
        ["outbox", "ls", "--outbox", "sqlite_x"],
    ):
        answer = cli(f"sqlite:///{tmp_path}/app.db", *words)
        assert (answer.code, answer.error["code"]) == (78, "bad_name")
    assert list(tmp_path.iterdir()) == []


FOREIGN = [["outbox", "ls"], ["outbox", "stats"], ["worker", "builtins:print"], ["reaper"]]


@pytest.mark.parametrize("command", FOREIGN, ids=" ".join)
def test_a_table_of_somebody_elses_is_called_that_by_every_command(sqlite_url, cli, command):
    run(sqlite_url, "CREATE TABLE outbox (mine TEXT)")
    assert cli(sqlite_url, "init").code == 0
    refused = cli(sqlite_url, "init", "--outbox", "outbox").error
    assert error_of(sqlite_url, *command) == (78, refused)


def test_a_table_of_somebody_elses_is_called_that_without_any_table_of_ours(new_url, cli):
    run(new_url, "CREATE TABLE outbox (mine TEXT)")
    refused = cli(new_url, "init", "--outbox", "outbox").error
    assert (refused["code"], "fencehold did not make it" in refused["message"]) == ("table_exists", True)
    assert cli(new_url, "outbox", "ls").error == refused
    [found] = [one for one in cli(new_url, "doctor", "--outbox", "outbox").json["checks"] if one["check"] == "tables"]
    assert (f"{found['detail']}.", found["hint"]) == (refused["message"], refused["hint"])


@pytest.mark.parametrize(
    ("name", "whose"),
    [("fencehold_leases", "it is the table of leases"), ("fencehold_schema", "fencehold records what it made")],
)
def test_an_outbox_named_like_a_table_of_ours_is_told_what_that_is(new_url, cli, name, whose):
    assert cli(new_url, "init").code == 0
    refused = cli(new_url, "init", "--outbox", name).error
    assert (refused["code"], whose in refused["message"]) == ("table_exists", True)
    assert f"--outbox {name}_events" in refused["hint"]
