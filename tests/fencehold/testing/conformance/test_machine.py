"""Random calls on every store, and the faults it must find: each is planted into the real backend's own SQL."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fencehold.ports.backend import Backend
from fencehold.testing import conformance, machine
from fencehold.testing.harness import LEASE_TABLE
from tests.examples.json_file_harness import JsonFileHarness
from tests.fencehold.testing.conformance.memory_harness import MemoryHarness
from tests.fencehold.testing.conformance.postgres_harness import PostgresHarness
from tests.fencehold.testing.conformance.sqlite_harness import SqliteHarness
from tests.servers.postgres import AnyPostgres

NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"


@dataclass(frozen=True)
class Planted:
    """One statement with one piece of its text replaced."""

    title: str
    statement: str
    right: str
    wrong: str

    def into(self, statements: Any) -> None:
        text = statements._styled[self.statement]
        assert self.right in text, f"{self.statement} no longer reads {self.right!r}: plant the fault anew"
        statements._styled[self.statement] = text.replace(self.right, self.wrong)


IN_SQLITE = (
    Planted("acquire one tick late", "acquire", "expires_at <= excluded", "expires_at < excluded"),
    Planted("acquire steals", "acquire", "WHERE expires_at <= excluded.acquired_at", "WHERE true"),
    Planted("no new epoch for the same holder", "acquire", "lease_epoch + 1",
            "lease_epoch + (holder_id <> excluded.holder_id)"),
    Planted("renew without the epoch", "renew", " AND lease_epoch = :epoch", ""),
    Planted("renew without the holder", "renew", " AND holder_id = :holder", ""),
    Planted("renew what has expired", "renew", f"AND expires_at > {NOW}", ""),
    Planted("renew at the instant of expiry", "renew", "AND expires_at > ", "AND expires_at >= "),
    Planted("release without the epoch", "release", " AND lease_epoch = :epoch", ""),
    Planted("release forgets who was asked", "release", "SET expires_at", "SET step_down_epoch = 0, expires_at"),
    Planted("ask any epoch to step down", "ask_step_down", " AND lease_epoch = :epoch", ""),
    Planted("fence by the holder only", "fence", " AND lease_epoch = :epoch", ""),
    Planted("fence at the instant of expiry", "fence", "AND expires_at > ", "AND expires_at >= "),
    Planted("no fence", "fence", "AND holder_id = :holder AND lease_epoch = :epoch\n"
            f"   AND expires_at > {NOW}", ""),
)  # fmt: skip

IN_POSTGRES = (
    Planted("acquire one tick late", "acquire", "expires_at <= clock_timestamp()", "expires_at < clock_timestamp()"),
    Planted("acquire one tick late, after the lock", "acquire", "l.expires_at <= c.now", "l.expires_at < c.now"),
    Planted("acquire steals", "acquire", "expires_at <= c", "expires_at > '-infinity' AND '-infinity' < c"),
    Planted("no new epoch for the same holder", "acquire", "l.lease_epoch + 1",
            "l.lease_epoch + (l.holder_id <> %(holder)s::varchar)::int"),
    Planted("a nonce is not looked at", "acquire", "acquire_nonce = %(nonce)s AND acquire_nonce <> ''", "true"),
    Planted("renew without the epoch", "renew", " AND l.lease_epoch = a.lease_epoch", ""),
    Planted("renew what has expired", "renew", "expires_at > c", "expires_at > '-infinity' AND '-infinity' < c"),
    Planted("renew at the instant of expiry", "renew", "expires_at > c", "expires_at >= c"),
    Planted("release without the holder", "release", " AND l.holder_id = a.holder_id", ""),
    Planted("ask any epoch to step down", "ask_step_down", "lease_epoch = %(epoch)s AND", "lease_epoch > 0 AND"),
    Planted("fence by the holder only", "fence", " AND lease_epoch = %(epoch)s", ""),
    Planted("fence at the instant of expiry", "fence", "expires_at > clock", "expires_at >= clock"),
    Planted("no fence", "fence", "AND holder_id = %(holder)s AND lease_epoch = %(epoch)s"
            " AND expires_at > clock_timestamp()", ""),
)  # fmt: skip


def title(planted: Planted) -> str:
    return planted.title


def statements(backend: Any) -> Any:
    """The texts that all parts of this backend share."""
    return backend.fences._statements


def test_memory_obeys_the_table():
    machine.check(MemoryHarness())


def test_sqlite_obeys_the_table(tmp_path: Path):
    machine.check(SqliteHarness(tmp_path / "machine.db"))


def test_postgres_obeys_the_table(every_postgres: AnyPostgres, database_of: Callable[[AnyPostgres], str]):
    machine.check(PostgresHarness(database_of(every_postgres)), examples=8)


def test_a_store_without_fences_obeys_the_table(tmp_path: Path):
    machine.check(JsonFileHarness(tmp_path / "leases.json"), examples=4)


@pytest.mark.parametrize("planted", IN_SQLITE, ids=title)
def test_a_fault_planted_into_sqlite_is_found(tmp_path: Path, planted: Planted):
    harness = SqliteHarness(tmp_path / "machine.db")
    with pytest.raises(AssertionError):
        machine.check(harness, shrink=False, prepare=lambda backend: planted.into(statements(backend)))


@pytest.mark.parametrize("planted", IN_POSTGRES, ids=title)
def test_a_fault_planted_into_postgres_is_found(
    postgres_server: AnyPostgres, database_of: Callable[[AnyPostgres], str], planted: Planted
):
    harness = PostgresHarness(database_of(postgres_server))
    with pytest.raises(AssertionError):
        machine.check(harness, shrink=False, prepare=lambda backend: planted.into(statements(backend)))


class HarnessWithFault(PostgresHarness):
    def __init__(self, url: str, planted: Planted) -> None:
        super().__init__(url)
        self._planted = planted

    def make(self, table: str = LEASE_TABLE) -> Backend:
        backend = super().make(table)
        self._planted.into(statements(backend))
        return backend


def test_a_guard_and_a_fence_that_do_not_lock_are_found(
    postgres_server: AnyPostgres, database_of: Callable[[AnyPostgres], str]
):
    suite: Any = conformance.WaitingWriter()  # its tests run themselves, each in a loop of its own
    url = database_of(postgres_server)
    guard = Planted("a guard that only looks", "guard", "FOR KEY SHARE", "")
    with pytest.raises(AssertionError, match="was_taken_over"):
        suite.test_a_guarded_statement_keeps_others_out_while_it_waits(HarnessWithFault(url, guard))
    fence = Planted("a fence that only looks", "fence", "FOR KEY SHARE", "")
    with pytest.raises(AssertionError, match="was_taken_over"):
        suite.test_a_fenced_transaction_keeps_others_out_while_it_waits(HarnessWithFault(url, fence))
