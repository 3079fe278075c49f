"""The outbox without an event loop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

import fencehold
from fencehold import Status, sync
from fencehold.backends.sql.statements import Statements
from fencehold.sync.background_loop import BackgroundLoop
from tests.fencehold.runtime.outbox.scene import own_connection

EVENT = "00000000-0000-0000-0000-000000000001"


@pytest.fixture(params=["sqlite", "postgres", "mssql"])
def some_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def store(some_url: str) -> Iterator[sync.Store]:
    with sync.connect(some_url) as store:
        store.init()
        yield store


def test_a_plain_function_handles_what_was_added(store: sync.Store) -> None:
    outbox = store.outbox("outbox", lease="5s")
    ids = outbox.add_many([("a", {"n": n}) for n in range(30)])
    seen: list[int] = []

    def handle(event: fencehold.Claim) -> None:
        seen.append(event.payload["n"])
        if len(seen) == len(ids):
            worker.stop()

    worker = outbox.worker(handle, concurrency=4)
    worker.run()
    assert sorted(seen) == list(range(30))
    assert outbox.stats().completed == 30


def test_the_verbs_answer_as_the_async_ones_do(store: sync.Store) -> None:
    outbox = store.outbox("outbox", max_retries=1)
    tracking_id = outbox.add("a", {"n": 1}, priority=3)
    [claim] = outbox.claim(5, "me")
    assert outbox.renew(claim) == [claim]
    assert outbox.fail(claim, "no use") is Status.DEAD_LETTER
    assert outbox.complete(claim) == []
    assert outbox.reap() == []
    assert outbox.redrive("a", "mended") == [tracking_id]
    [row] = outbox.find()
    assert (row.status, row.root_cause, row.retry_count) == (Status.PENDING, "mended", 0)
    assert outbox.complete(outbox.claim(1, "me"))[0].tracking_id == tracking_id
    assert outbox.retry([tracking_id]) == []
    assert outbox.purge("1ms", dry_run=True) in (0, 1)


@pytest.mark.parametrize("commits", [True, False])
def test_an_event_shares_the_fate_of_a_sync_transaction(store: sync.Store, some_url: str, commits: bool) -> None:
    outbox = store.outbox("outbox")
    with closing(own_connection(some_url)) as conn:
        tracking_id = outbox.add("a", {}, tx=conn)
        assert outbox.first_time(tracking_id, "me", tx=conn)
        assert not outbox.first_time(tracking_id, "me", tx=conn)
        conn.commit() if commits else conn.rollback()
    assert outbox.stats().pending == int(commits)


def test_in_a_transaction_the_event_loop_and_the_files_of_statements_are_needed_once(
    store: sync.Store, some_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by handles that are made for each request."""
    with closing(own_connection(some_url)) as conn:
        first = store.outbox("outbox").add("a", {}, tx=conn)
        assert store.outbox("outbox").first_time(first, "me", tx=conn)

        def needed(*_: object) -> None:
            raise AssertionError("it was to be known already")

        monkeypatch.setattr(BackgroundLoop, "run", needed)
        monkeypatch.setattr(Statements, "__init__", needed)
        store.outbox("outbox").add_many([("a", {})] * 2, tx=conn)
        assert not store.outbox("outbox").first_time(first, "me", tx=conn)
        monkeypatch.undo()
        conn.commit()
    assert store.outbox("outbox").stats().pending == 3


@pytest.mark.parametrize("is_forked", [False, True])
def test_an_outbox_of_a_closed_store_or_of_the_parent_process_adds_nothing(
    sqlite_url: str, is_forked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sync.connect(sqlite_url) as store, closing(own_connection(sqlite_url)) as conn:
        store.init()
        outbox = store.outbox("outbox")
        outbox.add("a", {}, tx=conn)
        if is_forked:
            monkeypatch.setattr("fencehold.sync.background_loop.fork_generation", lambda: -1)
        else:
            store.close()
        for attempt in (lambda: outbox.add("a", {}, tx=conn), lambda: outbox.first_time(EVENT, "me", tx=conn)):
            with pytest.raises(fencehold.ConfigurationError) as caught:
                attempt()
            assert caught.value.code == "store_closed"
        monkeypatch.undo()


def test_an_async_connection_is_refused_in_words(postgres_url: str) -> None:
    with sync.connect(postgres_url) as store:
        store.init()
        outbox = store.outbox("outbox")

        async def connect() -> Any:
            return await psycopg.AsyncConnection.connect(postgres_url)

        conn = store._running().run(connect())
        with pytest.raises(fencehold.ConfigurationError, match="sync connection") as caught:
            outbox.add("a", {}, tx=conn)
        store._running().run(conn.close())
    assert caught.value.code == "bad_connection"


def test_ctrl_c_finishes_what_is_in_hand(sqlite_url: str) -> None:
    with sync.connect(sqlite_url) as store:
        store.init()
        outbox = store.outbox("outbox")
        outbox.add("a", {})
        begun, may_end = threading.Event(), threading.Event()

        def handle(event: fencehold.Claim) -> None:
            begun.set()
            may_end.wait(10)

        def interrupt() -> None:
            begun.wait(10)
            os.kill(os.getpid(), signal.SIGINT)
            may_end.set()

        threading.Thread(target=interrupt).start()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                outbox.worker(handle).run()
        finally:
            signal.signal(signal.SIGINT, before)
        assert outbox.stats().completed == 1


def test_a_purged_event_is_forgotten_by_its_consumers_too(store: sync.Store, some_url: str) -> None:
    outbox = store.outbox("outbox")
    purged, kept = outbox.add("a", {}), outbox.add("a", {}, not_before="1h")
    outbox.complete(outbox.claim(1, "me"))
    with closing(own_connection(some_url)) as conn:
        for tracking_id in (purged, kept):
            assert outbox.first_time(tracking_id, "me", tx=conn)
        conn.commit()
    until_gone = 0
    while not until_gone:  # the store's clock ticks in milliseconds
        until_gone = outbox.purge("1ms")
    with closing(own_connection(some_url)) as conn:
        assert outbox.first_time(purged, "me", tx=conn)
        assert not outbox.first_time(kept, "me", tx=conn)


def test_a_claim_is_renewed_for_as_long_as_it_was_claimed(store: sync.Store) -> None:
    outbox = store.outbox("outbox", lease="30s")
    outbox.add_many([("a", {})] * 2)
    [long], [usual] = outbox.claim(1, "me", lease="1h"), outbox.claim(1, "me")
    assert set(outbox.renew([long, usual])) == {long, usual}
    held_s = {row.id: row.held_s for row in outbox.find()}
    assert 3000 < (held_s[long.id] or 0) <= 3600
    assert 20 < (held_s[usual.id] or 0) <= 30


@pytest.mark.parametrize("wrong", [{"per_minute": 0}, {"per_minute": -1}, {"limit": 0}])
def test_a_redrive_without_end_or_without_aim_is_refused(store: sync.Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(fencehold.ConfigurationError) as caught:
        store.outbox("outbox").redrive("a", "mended", **wrong)
    assert caught.value.code == "bad_settings"
