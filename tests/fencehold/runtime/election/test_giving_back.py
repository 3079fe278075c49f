"""What a leader gives back when it stops, and what is said when the store does not take it."""

import asyncio
from typing import Any

import pytest

import fencehold
from fencehold import Uncertain
from fencehold.backends.sqlite.leases import SqliteLeases
from tests.fencehold.runtime.outbox.scene import Heard, eventually


async def prepared(url: str) -> None:
    async with fencehold.connect(url) as store:
        await store.init()


async def is_free(url: str) -> bool:
    async with fencehold.connect(url) as store:
        [lease] = await store.leases.list()
        return not lease.is_live


@pytest.fixture
def unanswered(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when the store has granted a lease, once, and its answer was lost."""
    acquire, has_been = SqliteLeases.acquire, asyncio.Event()

    async def lost(leases: SqliteLeases, *args: Any) -> Any:
        answer = await acquire(leases, *args)
        if not has_been.is_set():
            has_been.set()
            raise Uncertain("no answer")
        return answer

    monkeypatch.setattr(SqliteLeases, "acquire", lost)
    return has_been


async def test_a_grant_whose_answer_was_lost_is_given_back_when_the_store_closes(
    sqlite_url: str, unanswered: asyncio.Event
) -> None:
    await prepared(sqlite_url)
    async with fencehold.connect(sqlite_url) as store:
        leader = store.leader("x", lease="60s", retry_strategy=fencehold.FixedInterval(3600))
        await leader.start()
        assert unanswered.is_set()
    assert await is_free(sqlite_url)


async def test_a_grant_whose_answer_was_lost_is_given_back_when_its_leader_stops(
    sqlite_url: str, unanswered: asyncio.Event
) -> None:
    await prepared(sqlite_url)
    async with fencehold.connect(sqlite_url) as store:
        leader = store.leader("x", lease="60s", retry_strategy=fencehold.FixedInterval(3600))
        await leader.start()
        assert unanswered.is_set()
        await leader.shutdown()
        await eventually(lambda: is_free(sqlite_url))


async def test_a_grant_under_way_when_the_store_closes_is_given_back(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepared(sqlite_url)
    acquire, granted, go_on = SqliteLeases.acquire, asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def slow(leases: SqliteLeases, *args: Any) -> Any:
        await acquire(leases, *args)
        loop.call_soon_threadsafe(granted.set)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go_on.wait(), loop))
        raise Uncertain("no answer")

    monkeypatch.setattr(SqliteLeases, "acquire", slow)
    store = await fencehold.connect(sqlite_url).open()
    starting = asyncio.ensure_future(store.leader("x", lease="60s").start())
    await granted.wait()
    monkeypatch.setattr(SqliteLeases, "acquire", acquire)
    closing = asyncio.ensure_future(store.close())
    go_on.set()
    await asyncio.wait([closing, starting])
    assert await is_free(sqlite_url)


async def test_a_release_that_failed_is_not_logged_as_released(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepared(sqlite_url)
    heard = Heard()

    async def fails(*args: Any) -> Any:
        raise Uncertain("no answer")

    async with fencehold.connect(sqlite_url, facts=heard) as store, store.leader("x") as leader:
        assert await leader.wait_for_leadership(30)
        monkeypatch.setattr(SqliteLeases, "release", fails)
        await leader.step_down()
        assert heard.all("leader_releasing", reason="released")
        assert heard.all("leader_release_failed", reason="released")
        assert heard.all("leader_lost", reason="release_not_confirmed")
        assert not heard.all("leader_released")


async def test_a_release_is_logged_when_the_store_has_confirmed_it(sqlite_url: str) -> None:
    await prepared(sqlite_url)
    heard = Heard()
    async with fencehold.connect(sqlite_url, facts=heard) as store, store.leader("x") as leader:
        assert await leader.wait_for_leadership(30)
    assert [name for name, _ in heard.facts if name.startswith("leader_rele")] == [
        "leader_releasing",
        "leader_released",
    ]


async def test_a_lease_that_is_left_to_lapse_is_logged_as_such(sqlite_url: str) -> None:
    await prepared(sqlite_url)
    heard = Heard()
    async with fencehold.connect(sqlite_url, facts=heard) as store, store.leader("x", release_on_stop=False) as leader:
        assert await leader.wait_for_leadership(30)
    (fields,) = heard.all("leader_left_to_lapse")
    assert fields["expires_at"]
    assert not heard.all("leader_released")
