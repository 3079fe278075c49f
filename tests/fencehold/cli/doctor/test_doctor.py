"""`fencehold doctor`: what it finds, how loudly, and with which exit code."""

import time
from typing import Any

import psycopg
import pytest

import fencehold
from tests.fencehold.cli.cli_process import hold, until
from tests.fencehold.cli.outbox_scene import Answer, added, in_every_status, reaped, row_of, with_outbox

OF_DIALECT = {
    "server", "encoding", "limits of this role", "journal", "file system", "disk", "durability",
    "epochs after a failover", "failover",
}  # fmt: skip


def states(answer: Answer) -> dict[str, str]:
    return {check["check"]: check["state"] for check in answer.json["checks"]}


def finding(answer: Answer, name: str) -> Any:
    return next(check for check in answer.json["checks"] if check["check"] == name)


def test_all_is_well_where_a_reaper_runs_and_nothing_is_stuck(outbox_url, cli):
    reaped(outbox_url)
    hold(outbox_url, "job")
    answer = cli(outbox_url, "doctor")
    assert (answer.code, answer.json["healthy"]) == (0, True)
    assert set(states(answer).values()) == {"ok"}
    assert states(answer).keys() - OF_DIALECT == {
        "database", "lease table", "writing", "items", "clock", "tables", "reaper", "lapsed events", "dead letters",
        "oldest pending",
    }  # fmt: skip


def test_a_missing_reaper_is_a_loud_error(outbox_url, cli, cli_text):
    answer = cli(outbox_url, "doctor")
    assert (answer.code, answer.json["healthy"]) == (1, False)
    assert finding(answer, "reaper")["state"] == "error"
    assert "fencehold reaper" in finding(answer, "reaper")["hint"]
    assert "NO REAPER: it has never run" in cli_text(outbox_url, "doctor").out


def test_a_reaper_counts_as_missing_by_the_lease_of_its_workers(outbox_url, cli):
    reaped(outbox_url)
    ran_s = time.monotonic()
    until(lambda: time.monotonic() > ran_s + 0.3, "a third of a second")
    assert states(cli(outbox_url, "doctor"))["reaper"] == "ok"
    assert states(cli(outbox_url, "doctor", "--lease", "100ms"))["reaper"] == "error"


def test_lapsed_dead_and_waiting_events_are_findings(outbox_url, cli):
    reaped(outbox_url)
    lapsed = in_every_status(outbox_url)["lapsed"]
    until(lambda: (row_of(outbox_url, lapsed).held_s or 0) < 0, "the lapse")
    answer = cli(outbox_url, "doctor", "--pending-age-max", "1ms")
    assert answer.code == 1
    assert [states(answer)[name] for name in ("lapsed events", "dead letters", "oldest pending")] == ["warning"] * 3
    assert finding(answer, "lapsed events")["detail"].startswith("1 of 2 in hand")
    assert states(cli(outbox_url, "doctor"))["oldest pending"] == "ok"


def test_clocks_that_differ_are_a_finding(outbox_url, cli, monkeypatch):
    added(outbox_url, "due")
    assert states(cli(outbox_url, "doctor"))["clock"] == "ok"
    now_s = time.time
    monkeypatch.setattr("fencehold.cli.doctor.checks.time.time", lambda: now_s() + 60)
    answer = cli(outbox_url, "doctor")
    assert finding(answer, "clock")["state"] == "warning"
    assert finding(answer, "clock")["detail"].startswith("the database's clock is ")
    assert "behind this machine's" in finding(answer, "clock")["detail"]


def test_it_works_where_there_are_leases_only(postgres_url, cli):
    async def init_other(outbox: fencehold.Outbox) -> None:
        await outbox.init()

    assert cli(postgres_url, "init").code == 0
    answer = cli(postgres_url, "doctor")
    assert answer.code == 0
    seen = {name: state for name, state in states(answer).items() if name not in OF_DIALECT}
    assert seen == {
        "database": "ok", "lease table": "ok", "writing": "ok", "items": "skipped", "outboxes": "skipped",
        "clock": "skipped",
    }  # fmt: skip
    with_outbox(postgres_url, init_other, name="orders")
    assert [states(cli(postgres_url, "doctor", "--outbox", name))["tables"] for name in ("orders", "outbox")] == [
        "ok", "error",
    ]  # fmt: skip


def test_tables_that_are_half_there_are_an_error(postgres_url, cli):
    assert cli(postgres_url, "init", "--outbox", "orders").code == 0
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP TABLE orders_reaper")
    assert finding(cli(postgres_url, "doctor"), "tables")["state"] == "error"


def test_a_database_that_is_not_there_is_a_finding_too(sqlite_url, cli, cli_text):
    secret = "postgresql://app:s3cr%40t-w0rd@127.0.0.1:1/app?connect_timeout=2"
    for url in (sqlite_url, secret):
        answer = cli(url, "doctor")
        assert (answer.code, states(answer)) == (1, {"database": "error"})
        assert "w0rd" not in answer.out + cli_text(url, "doctor").out
    assert cli(sqlite_url, "init").code == 0
    assert states(cli(sqlite_url, "doctor"))["database"] == "ok"


@pytest.mark.parametrize("arguments", [["--lease", "soon"], ["--outbox", "No Table"], ["--pending-age-max", "0"]])
def test_bad_input_is_78(sqlite_url, cli, arguments):
    assert cli(sqlite_url, "doctor", *arguments).code == 78
