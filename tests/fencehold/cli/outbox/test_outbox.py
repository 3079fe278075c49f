"""`fencehold outbox ...` and `fencehold init --outbox`: what they answer, what they change, what a dry run leaves."""

import contextlib
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from typing import Any

import psycopg
import pytest

import fencehold
from fencehold.cli.outbox import purge as outbox_purge
from fencehold.connect import scheme
from fencehold.model.outbox.rules import Status
from fencehold.runtime.outbox import outbox as outbox_noun
from tests.fencehold.cli.cli_process import prepare, until
from tests.fencehold.cli.outbox_scene import Answer, added, claimed, in_every_status, reaped, row_of, rows, with_outbox
from tests.servers.sqlserver import open_connection
from tests.tidy.tsql import batches

EVIL = "evil \x1b[31m\x07[bold]x[/bold]\u202e\nsecond line"
NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def url(outbox_url: str) -> str:
    return outbox_url


@pytest.fixture
def file_url(sqlite_url: str) -> str:
    prepare(sqlite_url)
    return sqlite_url


def statuses(url: str) -> dict[str, Status]:
    return {row.event_type: row.status for row in rows(url).values()}


def dead_letters(url: str, event_type: str, count: int) -> list[str]:
    async def make(outbox: fencehold.Outbox) -> list[str]:
        claims = [await claimed(outbox, event_type, "w") for _ in range(count)]
        for claim in claims:
            await outbox.fail(claim, "boom", retry=False)
        return [claim.tracking_id for claim in claims]

    return with_outbox(url, make)


def completed(url: str, count: int) -> None:
    async def make(outbox: fencehold.Outbox) -> None:
        await outbox.add_many([("done", n) for n in range(count)])
        await outbox.complete(await outbox.claim(count, "w"))

    with_outbox(url, make)


# show


def why(cli: Any, url: str, tracking_id: str) -> str:
    return str(cli(url, "outbox", "show", tracking_id).json["event"]["why"])


def test_show_says_why_an_event_is_where_it_is(url, cli):
    ids = in_every_status(url)
    assert "by w1" in why(cli, url, ids["done"])
    assert "after it was added, at try 1" in why(cli, url, ids["done"])
    failed = why(cli, url, ids["failed"])
    assert failed.startswith("waits until 2")
    assert failed.endswith("; try 2 of 5) because: boom")
    assert "rejected at 2" in why(cli, url, ids["rejected"])
    assert why(cli, url, ids["rejected"]).endswith("after 1 of 5 tries because: boom")
    assert why(cli, url, ids["held"]).startswith("held by w2 until 2")
    assert "renewed while it works; try 1 of 5" in why(cli, url, ids["held"])
    assert why(cli, url, ids["later"]).startswith("waits until 2")
    assert why(cli, url, ids["due"]).startswith("due since 2")


def test_a_lapsed_event_waits_for_the_reaper_and_show_says_whether_there_is_one(url, cli):
    lapsed = in_every_status(url)["lapsed"]
    until(lambda: (row_of(url, lapsed).held_s or 0) < 0, "the lapse")
    words = why(cli, url, lapsed)
    assert words.startswith("lapsed ")
    assert "w3 neither finished nor renewed it (try 1 of 5)" in words
    assert words.endswith("waiting for the reaper, which has never run: start one with `fencehold reaper`")
    assert reaped(url) == 1
    recovered = why(cli, url, lapsed)
    assert "; try 2 of 5), waits for a worker of its type; the last try failed because: lease expired: w3/" in recovered
    again = with_outbox(url, lambda outbox: claimed(outbox, "more", "w4", lease_s=0.001)).tracking_id
    until(lambda: (row_of(url, again).held_s or 0) < 0, "the lapse")
    assert "waiting for the reaper, which last ran " in why(cli, url, again)


def test_show_has_everything_and_the_payload_readable(url, cli, cli_text):
    event = added(url, "order.created", {"order": {"n": 42}}, aggregate_id="42", metadata={"user": "ann"})
    shown = cli(url, "outbox", "show", event.upper()).json["event"]
    assert (shown["payload"], shown["metadata"]) == ({"order": {"n": 42}}, {"user": "ann"})
    assert (shown["aggregate_id"], shown["status"], shown["retry_count"]) == ("42", "PENDING", 0)
    text = cli_text(url, "outbox", "show", event).out
    assert text.startswith("PENDING: due since ")
    assert '\npayload\n{\n  "order": {\n    "n": 42\n  }\n}\n' in text


def test_show_has_where_the_last_error_was_raised(url, cli, cli_text):
    async def fail(outbox: Any) -> str:
        tracking_id = await outbox.add("a", 1)
        (claim,) = await outbox.claim(1, "w")
        try:
            raise ConnectionError("postgresql://me:hunter2@db/x is down")
        except ConnectionError as error:
            await outbox.fail(claim, error)
        return str(tracking_id)

    event = with_outbox(url, fail)
    shown = cli(url, "outbox", "show", event).json["event"]
    assert shown["last_error"] == "ConnectionError: postgresql://me:***@db/x is down"
    assert shown["why"].endswith("because: ConnectionError: postgresql://me:***@db/x is down")
    assert shown["traceback"].startswith("Traceback (most recent call last):\n  File ")
    assert shown["traceback"].splitlines()[1].endswith("in fail")
    text = cli_text(url, "outbox", "show", event).out
    assert "\n\nTraceback (most recent call last):\n  File " in text
    assert "hunter2" not in text + str(shown)
    assert "Traceback" not in cli_text(url, "outbox", "ls").out


def test_an_event_that_is_not_there_is_1_and_an_id_that_is_none_is_78(url, cli):
    answer = cli(url, "outbox", "show", NOBODY)
    assert (answer.code, answer.error["code"]) == (1, "no_such_event")
    for command in (("show", "seven"), ("retry", NOBODY, "seven")):
        answer = cli(url, "outbox", *command)
        assert (answer.code, answer.error["code"]) == (78, "bad_tracking_id")


def test_nothing_an_event_holds_steers_a_terminal(file_url, cli_text):
    ids = in_every_status(file_url, error=EVIL)
    event = added(file_url, "evil", {"x": EVIL})
    with contextlib.closing(sqlite3.connect(file_url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("UPDATE outbox SET payload = ?, event_type = ? WHERE tracking_id = ?", [EVIL, EVIL, event])
    shown = [cli_text(file_url, "outbox", "show", one).out for one in (event, ids["failed"])]
    shown.append(cli_text(file_url, "outbox", "ls").out)
    assert all("\x1b" not in text and "\x07" not in text and "\u202e" not in text for text in shown)
    assert all("\\x1b[31m" in text or "\\u001b[31m" in text for text in shown)


# ls and stats


def test_events_are_listed_newest_first_by_status_and_type_without_their_payload(url, cli, cli_text):
    in_every_status(url)
    listed = cli(url, "outbox", "ls").json["events"]
    assert [one["event_type"] for one in listed] == ["due", "later", "lapsed", "held", "rejected", "failed", "done"]
    assert all("payload" not in one and "metadata" not in one for one in listed)
    some = cli(url, "outbox", "ls", "--status", "failed", "--status", "DEAD_LETTER").json["events"]
    assert [one["event_type"] for one in some] == ["rejected", "failed"]
    some = cli(url, "outbox", "ls", "--type", "held", "--type", "due").json["events"]
    assert [one["event_type"] for one in some] == ["due", "held"]
    answer = cli_text(url, "outbox", "ls", "--limit", "2")
    assert [line.split()[1] for line in answer.out.splitlines()] == ["ID", "due", "later"]
    assert "there may be more" in answer.err


def test_stats_count_every_status_and_tell_of_the_reaper(url, cli, cli_text):
    lapsed = in_every_status(url)["lapsed"]
    until(lambda: (row_of(url, lapsed).held_s or 0) < 0, "the lapse")
    stats = cli(url, "outbox", "stats").json["stats"]
    counts = [stats[name] for name in ("pending", "processing", "completed", "failed", "dead_letter", "lapsed")]
    assert counts == [2, 2, 1, 1, 1, 1]
    assert (stats["reaper_missing"], stats["reaper_ran_s_ago"]) == (True, None)
    assert "never (MISSING)" in cli_text(url, "outbox", "stats").out
    reaped(url)
    assert cli(url, "outbox", "stats").json["stats"]["reaper_missing"] is False


# retry and redrive


def test_retry_takes_what_failed_or_is_dead_and_names_what_it_leaves_alone(url, cli):
    ids = in_every_status(url)
    wanted = [*ids.values(), NOBODY]
    before = rows(url)
    dry = cli(url, "outbox", "retry", *wanted, "--dry-run")
    assert {one: (row.status, row.due_at) for one, row in rows(url).items()} == {
        one: (row.status, row.due_at) for one, row in before.items()
    }
    wet = cli(url, "outbox", "retry", *wanted, "--root-cause", "mended")
    assert (dry.code, wet.code) == (1, 1)
    assert dry.json == {**wet.json, "dry_run": True}
    assert wet.json["retried"] == [ids["failed"], ids["rejected"]]
    left = {one["tracking_id"]: one["why"] for one in wet.json["left_alone"]}
    assert left[ids["done"]] == "it is done"
    assert left[ids["held"]] == "a worker has it in hand"
    assert left[NOBODY] == "there is no such event"
    row = row_of(url, ids["failed"])
    assert (row.status, row.retry_count, row.root_cause) == (Status.PENDING, 0, "mended")
    assert why(cli, url, ids["failed"]).endswith("made PENDING again by an operator because: mended")


def test_redrive_is_for_one_type_so_many_a_minute_with_its_root_cause(url, cli, cli_text):
    wanted, other = dead_letters(url, "order", 4), dead_letters(url, "mail", 1)
    arguments = ("outbox", "redrive", "--type", "order", "--root-cause", "broker", "--limit", "3", "--per-minute", "60")
    dry = cli(url, *arguments, "--dry-run")
    assert {row.status for row in rows(url).values()} == {Status.DEAD_LETTER}
    wet = cli(url, *arguments)
    assert dry.json == {**wet.json, "dry_run": True}
    assert (wet.json["redriven"], wet.json["last_due_in_s"]) == (wanted[:3], 2.0)
    first, _, last = (row_of(url, one) for one in wanted[:3])
    assert 1.9 < (last.due_at - first.due_at).total_seconds() < 2.1
    assert (first.status, first.root_cause) == (Status.PENDING, "broker")
    assert row_of(url, other[0]).status is Status.DEAD_LETTER
    assert cli_text(url, *arguments).out == "1 dead letter of type 'order' is PENDING again, the last due in 0.0 s\n"
    assert cli_text(url, *arguments).out == "no dead letters of type 'order'\n"


@pytest.mark.parametrize("missing", ["--type", "--root-cause"])
def test_redrive_without_a_type_or_a_cause_is_78(file_url, cli, missing):
    given = [word for pair in {"--type": "a", "--root-cause": "b"}.items() if pair[0] != missing for word in pair]
    answer = cli(file_url, "outbox", "redrive", *given)
    assert (answer.code, answer.error["code"]) == (78, "bad_usage")
    assert missing in answer.error["message"]
    assert cli(file_url, "outbox", "redrive", "--type", "a", "--root-cause", " ").error["code"] == "no_root_cause"


@pytest.mark.parametrize("rate", ["nan", "0", "-1"])
def test_redrive_at_a_rate_that_is_none_is_78(file_url, cli, rate):
    event = dead_letters(file_url, "order", 1)[0]
    answer = cli(file_url, "outbox", "redrive", "--type", "order", "--root-cause", "b", f"--per-minute={rate}")
    assert (answer.code, answer.out) == (78, "")
    assert answer.error["code"] in ("bad_settings", "bad_usage")
    assert rate in answer.error["message"]
    assert row_of(file_url, event).status is Status.DEAD_LETTER


# purge


def test_purge_deletes_what_is_finished_and_old_and_nothing_else(url, cli):
    in_every_status(url)
    assert cli(url, "outbox", "purge", "--older-than", "1d").json["deleted"] == 0
    assert cli(url, "outbox", "purge", "--older-than", "1ms", "--dry-run").json["deleted"] == 1
    assert statuses(url)["done"] is Status.COMPLETED
    assert cli(url, "outbox", "purge", "--older-than", "1ms").json["deleted"] == 1
    assert sorted(statuses(url)) == ["due", "failed", "held", "lapsed", "later", "rejected"]


def test_dead_letters_are_purged_only_when_named_and_young_ones_only_by_force(url, cli):
    dead_letters(url, "order", 2)
    answer = cli(url, "outbox", "purge", "--older-than", "1ms", "--status", "DEAD_LETTER")
    assert (answer.code, answer.error["code"]) == (78, "too_young")
    assert cli(url, "outbox", "purge", "--older-than", "90d", "--status", "DEAD_LETTER").json["deleted"] == 0
    forced = ("outbox", "purge", "--older-than", "1ms", "--status", "DEAD_LETTER", "--force")
    assert cli(url, *forced).json["deleted"] == 2
    assert rows(url) == {}


def test_ctrl_c_in_the_middle_of_a_purge_says_how_far_it_got(url, cli_text, monkeypatch):
    completed(url, 6)
    monkeypatch.setattr(outbox_noun, "PURGE_BATCH", 1)
    told = outbox_purge.Tally.told

    def interrupted(tally: outbox_purge.Tally, deleted: int) -> None:
        told(tally, deleted)
        if deleted == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(outbox_purge.Tally, "told", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        answer = cli_text(url, "outbox", "purge", "--older-than", "1ms")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (answer.code, answer.out) == (130, "")
    assert "interrupted: 2 were deleted for sure" in answer.err
    assert len(rows(url)) in (3, 4)


def test_on_a_terminal_a_purge_shows_a_bar_on_stderr_and_its_result_on_stdout(file_url):
    completed(file_url, 20)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "FENCEHOLD_DSN": file_url, "COLUMNS": "100", "TERM": "xterm"}
    command = [sys.executable, "-m", "fencehold.cli", "outbox", "purge", "--older-than", "1ms"]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, env=environment, timeout=30, check=True, text=True
    )
    bar = os.read(ours, 65536).decode()
    for end in (ours, theirs):
        os.close(end)
    assert "20/20" in bar
    assert done.stdout == "20 COMPLETED events older than 0.0 s deleted\n"


# The same for all


OUTBOX_COMMANDS = (
    ["ls"], ["show", NOBODY], ["retry", NOBODY], ["redrive", "--type", "a", "--root-cause", "b"],
    ["purge", "--older-than", "1d"], ["stats"],
)  # fmt: skip


def test_an_outbox_that_is_not_there_is_78_and_says_how_to_make_it(url, cli):
    for command in OUTBOX_COMMANDS:
        answer = cli(url, "outbox", *command, "--outbox", "other")
        assert (answer.code, answer.error["code"]) == (78, "schema_missing")
        assert "fencehold init" in answer.error["hint"]
        assert cli(url, "outbox", *command, "--outbox", "No Table").error["code"] == "bad_name"


@pytest.mark.parametrize("command", OUTBOX_COMMANDS, ids=lambda command: command[0])
def test_an_unreachable_database_is_69_and_its_password_is_never_printed(cli, cli_text, command):
    url = "postgresql://app:s3cr%40t-w0rd@127.0.0.1:1/app?connect_timeout=2"
    for answer in (cli(url, "outbox", *command), cli_text(url, "outbox", *command)):
        assert answer.code == 69
        assert "s3cr" not in answer.out + answer.err
        assert "w0rd" not in answer.out + answer.err


def test_an_error_that_quotes_the_password_is_shown_without_it(url, cli, cli_text):
    quoting = "cannot log in: postgresql://app:s3cr3t-w0rd@h/d password=hunter2"
    event = in_every_status(url, error=quoting)["failed"]
    for answer in (cli(url, "outbox", "show", event), cli_text(url, "outbox", "ls")):
        assert "cannot log in" in answer.out
        assert "w0rd" not in answer.out
        assert "hunter2" not in answer.out


@pytest.mark.parametrize("command", [["outbox"], *(["outbox", c[0]] for c in OUTBOX_COMMANDS)], ids=" ".join)
def test_help_teaches_with_an_example_and_exit_codes(cli_text, command):
    answer: Answer = cli_text(None, *command, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert "Example" in answer.out
    assert "Exit codes" in answer.out


# init


def test_init_makes_the_outboxes_that_are_named(any_url, cli):
    first = cli(any_url, "init", "--outbox", "orders", "--outbox", "billing").json
    assert first["outboxes"] == ["orders", "billing"]
    assert first["applied"].count("0001_outbox") == 2
    assert cli(any_url, "init", "--outbox", "billing").json["up_to_date"] is True
    assert cli(any_url, "outbox", "stats", "--outbox", "orders").code == 0
    assert cli(any_url, "outbox", "stats").code == 78


def test_the_printed_sql_makes_outboxes_that_init_accepts(any_url, cli):
    dialect = {"postgresql": "postgres"}.get(scheme(any_url), scheme(any_url))
    script = cli(None, "sql", "init", "--dialect", dialect, "--outbox", "orders", "--outbox", "billing").json["sql"]
    if dialect == "sqlite":
        with contextlib.closing(sqlite3.connect(any_url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(script)
    elif dialect == "mssql":
        assert "-- GRANT SELECT, INSERT ON [orders_consumed] TO app;" in script
        with contextlib.closing(open_connection(any_url)) as connection:
            for batch in batches(script):
                connection.cursor().execute(batch)
    else:
        assert '-- GRANT SELECT, INSERT ON "orders_consumed" TO app;' in script
        with psycopg.connect(any_url, autocommit=True) as connection:
            connection.execute(script.encode())
    assert cli(any_url, "init", "--outbox", "orders", "--outbox", "billing").json["up_to_date"] is True
