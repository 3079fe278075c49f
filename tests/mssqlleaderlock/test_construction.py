"""What a lock may be made of, and its public names."""

from typing import Any

import pytest

import mssqlleaderlock
import pgleaderlock
from mssqlleaderlock import LeaderLock, LockState

URL = "mssql://clerk:geheim@db/app"


def test_the_public_names_are_those_of_the_lock_on_postgresql() -> None:
    own, other = set(mssqlleaderlock.__all__), set(pgleaderlock.__all__)
    assert own - other == {"MssqlLeaderLockError"}
    assert other - own == {"PgLeaderLockError"}
    for name in own & other - {"LeaderLock"}:
        assert getattr(mssqlleaderlock, name) is getattr(pgleaderlock, name)
    errors = (mssqlleaderlock.ConnectionError, mssqlleaderlock.LockError, mssqlleaderlock.ShutdownError)
    assert all(issubclass(error, mssqlleaderlock.MssqlLeaderLockError) for error in errors)


@pytest.mark.parametrize(
    "event", ["acquired", "released", "lost", "acquire_failed", "state_change", "error", "stopped"]
)
def test_registration_returns_the_function_unchanged(event: str) -> None:
    def mine(*args: object) -> None: ...

    assert getattr(LeaderLock(URL, "job"), f"on_{event}")(mine) is mine


@pytest.mark.parametrize("name", ["a", "Billing", "x" * 255, "\N{GRINNING FACE}" * 127 + "x", "with blanks / and ; '"])
def test_a_name_that_the_server_keeps_whole_is_taken(name: str) -> None:
    lock = LeaderLock(URL, name)
    assert (lock.name, lock.state, lock.is_leader) == (name, LockState.STOPPED, False)


@pytest.mark.parametrize("name", ["", "x" * 256, "\N{GRINNING FACE}" * 128, " a", "a ", "a\nb", "\ud800", 7, None])
def test_a_name_that_the_server_would_cut_or_change_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="lock name"):
        LeaderLock(URL, name)


@pytest.mark.parametrize("setting", ["health_interval_s", "reconnect_grace_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_duration_that_cannot_be_is_refused(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=setting):
        LeaderLock(URL, "job", **{setting: value})  # type: ignore[arg-type]


def test_probes_that_are_too_rare_for_the_servers_own_watch_are_refused() -> None:
    LeaderLock(URL, "job", health_interval_s=10)
    with pytest.raises(ValueError, match=r"health_interval_s is 10\.1; it must be at most 10"):
        LeaderLock(URL, "job", health_interval_s=10.1)


@pytest.mark.parametrize("url", ["", "db/app", "postgresql://clerk:geheim@db/app", "mssql://clerk:ge/heim@db/app"])
def test_a_url_that_cannot_be_used_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"\[bad_url\]") as refused:
        LeaderLock(url, "job")
    assert "heim" not in str(refused.value)


def test_a_fencing_name_and_table_are_checked_at_once() -> None:
    with pytest.raises(ValueError, match="lease name"):
        LeaderLock(URL, "job", fencing_name="x" * 65)
    with pytest.raises(ValueError, match="table name"):
        LeaderLock(URL, "job", fencing_name="job", fencing_table="drop table x")


def test_its_text_shows_no_password() -> None:
    assert repr(LeaderLock(URL, "job")) == "<LeaderLock name='job' stopped mssql://clerk:***@db/app>"
