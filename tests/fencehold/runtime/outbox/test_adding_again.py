"""An add without an answer is repeated once by itself: its tracking id makes that safe. Then it is stored, once."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, cast

import psycopg
import pytest

import fencehold
from fencehold.backends.postgres.outbox.session import EventSession
from fencehold.model.outbox.new_events import NewEvent, new_event
from fencehold.model.outbox.settings import outbox_settings
from fencehold.ports.events import EventPort
from fencehold.runtime.outbox.adding import add_surely
from fencehold.testing.proxy import Fault, FaultProxy
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.servers.postgres import PostgresServer

MANY = 60  # enough for a bulk load
COUNTS = [1, 3, MANY]


async def added(outbox: fencehold.Outbox, count: int, word: str = "x") -> list[str]:
    """One by add(), more by add_many()."""
    if count == 1:
        return [await outbox.add("order.created", word)]
    return await outbox.add_many([("order.created", word) for _ in range(count)])


async def stored(url: str) -> list[str]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        rows = await connection.execute("SELECT CAST(tracking_id AS text) FROM outbox ORDER BY id")
        return [row[0] for row in await rows.fetchall()]


@asynccontextmanager
async def through_proxy(url: str) -> AsyncIterator[tuple[FaultProxy, str]]:
    parts = psycopg.conninfo.conninfo_to_dict(url)
    async with FaultProxy(str(parts["host"]), int(parts["port"] or 5432)) as proxy:
        yield proxy, re.sub(r"@[^/]+/", f"@{proxy.host}:{proxy.port}/", url, count=1)


async def test_the_first_add_after_a_server_restart_is_stored_once_and_raises_nothing(
    own_postgres: PostgresServer, opened: Opened
) -> None:
    url = own_postgres.dsn()
    async with opened(url) as (outbox, _):
        ids = await added(outbox, 1)
        for count in COUNTS:
            await asyncio.to_thread(own_postgres.restart)
            ids += await added(outbox, count)
        assert await stored(url) == ids


@pytest.mark.parametrize("count", COUNTS)
async def test_an_add_whose_answer_was_lost_is_stored_once(schema_url: str, opened: Opened, count: int) -> None:
    async with through_proxy(schema_url) as (proxy, url), opened(url) as (outbox, _):
        await added(outbox, 1, "warm")
        trip = proxy.when_seen(b"a word to be lost", Fault.RESET_ONE)
        ids = await added(outbox, count, "a word to be lost")
        await trip.wait()
        assert (await stored(schema_url))[1:] == ids


async def test_a_bulk_load_whose_notification_failed_is_stored_and_raises_nothing(
    schema_url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To say that nothing was done would be wrong: it would be added again, under new ids."""
    real = EventSession.run

    async def refused(self: EventSession, name: str, *rest: Any) -> Any:
        if name == "tell":
            raise fencehold.Unavailable("The server is going down; nothing was sent.")
        return await real(self, name, *rest)

    monkeypatch.setattr(EventSession, "run", refused)
    async with opened(schema_url) as (outbox, _):
        ids = await added(outbox, MANY)
        assert await stored(schema_url) == ids


async def test_without_an_answer_and_then_without_a_server_it_is_uncertain_not_unexecuted(
    schema_url: str, opened: Opened
) -> None:
    async with through_proxy(schema_url) as (proxy, url), opened(url) as (outbox, _):
        await added(outbox, 1)
        trip = proxy.when_seen(b"a word to be lost", Fault.CUT)
        with pytest.raises(fencehold.Uncertain):
            await outbox.add("order.created", "a word to be lost")
        await trip.wait()
        proxy.heal()


async def test_a_server_that_went_away_before_anything_was_sent_has_executed_nothing(
    own_postgres: PostgresServer, opened: Opened
) -> None:
    async with opened(own_postgres.dsn()) as (outbox, _):
        await added(outbox, 1)
        await asyncio.to_thread(own_postgres.stop)
        with pytest.raises(fencehold.Unavailable):
            await added(outbox, 1)


async def test_an_event_in_the_callers_transaction_is_not_repeated(schema_url: str, opened: Opened) -> None:
    async with through_proxy(schema_url) as (proxy, url), opened(schema_url) as (outbox, _):
        connection = await psycopg.AsyncConnection.connect(url)
        trip = proxy.when_seen(b"a word to be lost", Fault.RESET_ONE)
        with pytest.raises(fencehold.Uncertain):
            await outbox.add("order.created", "a word to be lost", tx=connection)
        await trip.wait()
        await connection.close()
        assert await stored(schema_url) == []


class NoAnswer:
    """A port that takes so many events, or all, and gives no answer to its first call."""

    def __init__(self, takes: int, after_s: float = 0.0) -> None:
        self.calls: list[list[NewEvent]] = []
        self.limits_s: list[float] = []
        self._takes = takes
        self._after_s = after_s

    async def add(self, events: Iterable[NewEvent], limit_s: float) -> list[str]:
        self.limits_s.append(limit_s)
        self.calls.append([])
        try:
            for event in islice(events, None if len(self.calls) > 1 else self._takes):
                self.calls[-1].append(event)
        finally:  # as where a broken connection hides what broke it off
            if len(self.calls) == 1:
                await asyncio.sleep(self._after_s)
                raise fencehold.Uncertain("no answer")
        return []


def coming(count: int, bad_at: int | None = None) -> Iterator[NewEvent]:
    for n in range(count):
        if n == bad_at:
            raise fencehold.ConfigurationError("a bad one")
        yield new_event(outbox_settings(), "order.created", n)


@pytest.mark.parametrize("takes", [0, 2, 5])
async def test_however_many_were_sent_all_are_sent_again_as_possibly_known(takes: int) -> None:
    port = NoAnswer(takes)
    await add_surely(cast(EventPort, port), coming(5), 10.0)
    assert port.calls[1][:takes] == port.calls[0]
    assert [json.loads(event.payload) for event in port.calls[1]] == list(range(5))
    assert all(event.is_dedupable for event in port.calls[1])


@pytest.mark.parametrize("takes", [2, 5], ids=["not met at first", "met at first"])
async def test_a_bad_event_behind_those_without_an_answer_is_raised_and_nothing_is_sent_again(takes: int) -> None:
    port = NoAnswer(takes)
    with pytest.raises(fencehold.ConfigurationError):
        await add_surely(cast(EventPort, port), coming(5, bad_at=3), 10.0)
    assert len(port.calls) == 1


async def test_both_tries_share_one_limit() -> None:
    port = NoAnswer(1, after_s=0.05)
    await add_surely(cast(EventPort, port), coming(1), 10.0)
    assert port.limits_s[1] <= port.limits_s[0] - 0.04
