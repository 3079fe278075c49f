"""Bad input gets a coded error that says what, why and the fix, before anything is sent or written."""

import datetime as dt
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import fencehold
from fencehold.model import names
from fencehold.model.durations import seconds
from fencehold.model.errors import redact

SECRET = "hunter2-pass"


@pytest.mark.parametrize(
    "url",
    [
        "app.db", "mysql://host/db", "redis://h", "sqlite://app.db", "sqlite:///", "sqlite:///:memory:",
        "sqlite:///a.db?mode=ro", f"postgresql://u:{SECRET}/x@host:port:1/db", f"postgresql://u:{SECRET}@h/db?nonsense=1",
        f"postgresql://u:12/{SECRET}@host/db", f"postgresql://u:{SECRET}/db", f"postgresql://u:a@{SECRET}@host/db",
    ],
)  # fmt: skip
def test_a_wrong_url_is_refused_before_anything_is_opened_and_never_shows_the_password(url: str) -> None:
    with pytest.raises(fencehold.ConfigurationError) as caught:
        fencehold.connect(url)
    assert caught.value.code == "bad_url"
    assert caught.value.hint
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("table", ["", "Leases", "a b", 'x"; DROP TABLE y; --', "x" * 49, "a.b.c", "1st", "tä"])
def test_a_table_name_that_could_be_cut_or_could_carry_sql_is_refused(table: str) -> None:
    with pytest.raises(fencehold.ConfigurationError) as caught:
        fencehold.connect("memory://x", table=table)
    assert caught.value.code == "bad_name"


@pytest.mark.parametrize("name", ["", "x" * 65, " x", "x ", "a\nb", "a\0b", "\ud800", 7, None])
async def test_a_lease_name_that_a_database_would_change_is_refused(name: Any) -> None:
    async with fencehold.connect("memory://names") as store:
        with pytest.raises(fencehold.ConfigurationError) as caught:
            store.leader(name)
        assert caught.value.code == "bad_name"
        with pytest.raises(fencehold.ConfigurationError):
            await store.leases.acquire(name)
        assert await store.leases.list() == []


@pytest.mark.parametrize("value", [0, -1, "", "ten", "5x", "-5s", float("nan"), float("inf"), True, None, [1], "1e3"])
def test_a_duration_must_be_positive_finite_and_legible(value: Any) -> None:
    with pytest.raises(fencehold.ConfigurationError) as caught:
        seconds(value, "lease")
    assert caught.value.code == "bad_duration"
    assert "lease" in caught.value.message


@pytest.mark.parametrize(("value", "expected"), [("30s", 30), ("5m", 300), (0.5, 0.5), ("250ms", 0.25), ("1.5h", 5400)])
def test_durations_read_as_people_write_them(value: Any, expected: float) -> None:
    assert seconds(value) == expected
    assert seconds(dt.timedelta(seconds=expected)) == expected


async def test_every_wrong_relation_between_durations_is_named_in_one_message() -> None:
    async with fencehold.connect("memory://relations") as store:
        with pytest.raises(fencehold.ConfigurationError) as caught:
            store.leader("x", lease=30, renew_every=30, stall_limit=1, on_error="ignore")  # type: ignore[arg-type]
    message = caught.value.message
    assert "renew_every (30 s) must be below lease (30 s)" in message
    assert "stall_limit" in message
    assert "on_error" in message


async def test_a_negative_and_an_illegible_duration_are_both_named() -> None:
    async with fencehold.connect("memory://relations") as store:
        with pytest.raises(fencehold.ConfigurationError) as caught:
            store.leader("x", lease=-5, margin="soon")
    assert "lease" in caught.value.message
    assert "margin" in caught.value.message


async def test_one_holder_cannot_be_a_candidate_twice() -> None:
    async with fencehold.connect("memory://twice") as store:
        leader = store.leader("x", holder_id="me")
        with pytest.raises(fencehold.ConfigurationError) as caught:
            store.leader("x", holder_id="me")
        assert caught.value.code == "duplicate_holder"
        await leader.start()
        await leader.shutdown()
        second = store.leader("x", holder_id="me")
        with pytest.raises(fencehold.ConfigurationError):
            await leader.start()
        await second.shutdown()
        await leader.start()
        with pytest.raises(fencehold.ConfigurationError):
            store.leader("x", holder_id="me")


async def test_a_closed_store_says_so() -> None:
    store = fencehold.connect("memory://closed")
    with pytest.raises(fencehold.ConfigurationError) as caught:
        await store.leases.read("x")
    assert caught.value.code == "store_closed"


async def test_a_missing_sqlite_table_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    for _ in range(2):  # first without a file, then with a file that has other tables only
        async with fencehold.connect(f"sqlite:///{path}") as store:
            with pytest.raises(fencehold.ConfigurationError) as caught:
                await store.leader("x").start()
        assert caught.value.code == "schema_missing"
        assert "fencehold init" in caught.value.hint
        sqlite3.connect(path).execute("CREATE TABLE IF NOT EXISTS mine (a)").connection.close()


async def test_looking_at_a_sqlite_url_creates_no_file(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with fencehold.connect(f"sqlite:///{path}") as store:
        with pytest.raises(fencehold.ConfigurationError):
            await store.leases.list()
    assert not path.exists()


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("dear reader, " * 100)
    async with fencehold.connect(f"sqlite:///{path}") as store:
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await store.init()
    assert caught.value.code == "bad_url"
    assert path.read_text().startswith("dear reader")


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{SECRET}@host/db", f"could not connect to postgres://me:{SECRET}@host:5432/db?x=1",
        f"host=h password={SECRET} user=x", f"password='{SECRET} two' host=h", f"mssql://sa:{SECRET}@h;pwd={SECRET}",
        f"postgresql://me:a@b{SECRET}@host/db", f"postgresql://h/db?user=x&password={SECRET}",
        f"AccountEndpoint=e;AccountKey={SECRET};",
    ],
)  # fmt: skip
def test_passwords_are_redacted_wherever_they_stand(text: str) -> None:
    assert SECRET not in redact(text)


def test_the_default_holder_id_is_hostname_pid_random_and_never_the_same_twice() -> None:
    ids = {names.default_holder_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(one) <= names.HOLDER_ID_CHARS_MAX for one in ids)
