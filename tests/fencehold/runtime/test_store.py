"""A store as a program meets it: logs with the spec's names, a forked child, many stores, sync use, callbacks."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections import defaultdict
from typing import Any

import pytest

import fencehold
import fencehold.sync
from fencehold.telemetry.logs import LogSink

FIELDS = {"lease_name", "holder_id", "lease_epoch", "expires_at"}


class Told(LogSink):
    """Logs as usual, and lets a test wait for an event."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def fact(self, event: str, **fields: Any) -> None:
        super().fact(event, **fields)
        self._loop.call_soon_threadsafe(self._note, event)

    def _note(self, event: str) -> None:
        self._events[event].set()

    async def once(self, event: str) -> None:
        await self._events[event].wait()


def events(caplog: pytest.LogCaptureFixture) -> dict[str, dict[str, Any]]:
    return {record.fencehold["event"]: record.fencehold for record in caplog.records if hasattr(record, "fencehold")}


async def test_the_log_has_the_event_names_and_fields_of_spec_000(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "fencehold")
    told_of = Told()
    async with fencehold.connect(sqlite_url, facts=told_of) as store:
        await store.init()
        async with store.leader("x", lease="300ms", holder_id="a") as first:
            assert await first.wait_for_leadership(10)
            async with store.leader("x", lease="300ms", holder_id="b") as second:
                assert not await second.wait_for_leadership(0.2)
            await told_of.once("leader_renewed")
            assert first.term is not None
            with pytest.raises(fencehold.LeaseLost):
                raise first.term.lost("for the test")
    told = events(caplog)
    for event in ("leader_acquired", "leader_renewed", "leader_acquire_failed", "leader_lost"):
        assert told[event].keys() >= FIELDS, event
    assert told["leader_acquired"]["holder_id"] == "a"


async def test_a_failed_renewal_is_logged_with_the_database_s_words(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "fencehold")
    told_of = Told()
    async with fencehold.connect(sqlite_url, facts=told_of) as store:
        await store.init()
        async with store.leader("x", lease="400ms") as leader:
            assert await leader.wait_for_leadership(10)
            term = leader.term
            assert term is not None
            async with term, term.transaction():  # on SQLite renewals wait for it, and in the end fail
                await told_of.once("leader_renew_failed")
                await term.ended()
    assert "locked" in events(caplog)["leader_renew_failed"]["sql_error"]


@pytest.mark.fault("fork", "leader", "any")
async def test_a_forked_child_holds_nothing(sqlite_url: str) -> None:
    async with fencehold.connect(sqlite_url) as store:
        await store.init()
        async with store.leader("x", lease="60s") as leader:
            assert await leader.wait_for_leadership(10)
            term = leader.term
            assert term is not None
            child = os.fork()
            if child == 0:
                os._exit(0 if not term.is_valid and not leader.is_leader else 1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0, "the child believed in its parent's lease"
            assert term.is_valid


async def test_all_stores_of_a_process_share_one_keeper_thread_and_the_last_one_stops_it(sqlite_url: str) -> None:
    def keepers() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "fencehold-keeper"]

    async with fencehold.connect(sqlite_url) as one:
        await one.init()
        async with fencehold.connect("memory://a") as two, two.leader("x") as leader:
            assert await leader.wait_for_leadership(10)
            (keeper,) = keepers()
    await asyncio.to_thread(keeper.join, 10)
    assert not keepers()


def test_the_sync_face_leads_fences_and_refuses(sqlite_url: str) -> None:
    with fencehold.sync.connect(sqlite_url) as store:
        store.init()
        with store.leader("x", lease="60s", holder_id="me") as leader:
            assert leader.wait_for_leadership(10)
            term = leader.term
            assert term is not None
            with term.transaction() as tx:
                tx.execute("CREATE TABLE t (a)")
                tx.execute("INSERT INTO t VALUES (1)")
            row = store.leases.read("x")
            assert row is not None
            assert store.leases.release(row) is not None
            with pytest.raises(fencehold.LeaseLost), term.transaction() as tx:
                tx.execute("INSERT INTO t VALUES (2)")
            assert not term.is_valid
        assert leader.state is fencehold.LockState.STOPPED


def test_the_sync_face_refuses_stale_writes_on_postgresql_too(postgres_url: str) -> None:
    with fencehold.sync.connect(postgres_url) as store:
        store.init()
        with store.leader("x", lease="60s") as leader:
            terms = leader.terms()
            term = next(terms)
            with term.transaction() as tx:
                tx.execute("CREATE TABLE t (a int)")
            row = store.leases.read("x")
            assert row is not None
            assert store.leases.release(row) is not None
            with term, term.transaction() as tx:
                tx.execute("INSERT INTO t VALUES (2)")
            assert term.ended_because == "fence_refused"


async def test_leaving_the_leader_gives_the_lease_back_and_an_option_keeps_it(sqlite_url: str) -> None:
    async with fencehold.connect(sqlite_url) as store:
        await store.init()
        async with store.leader("x", lease="60s") as leader:
            assert await leader.wait_for_leadership(10)
        gone = await store.leases.read("x")
        async with store.leader("y", lease="60s", release_on_stop=False) as leader:
            assert await leader.wait_for_leadership(10)
        kept = await store.leases.read("y")
    assert gone is not None
    assert kept is not None
    assert (gone.is_live, kept.is_live) == (False, True)


async def test_ctrl_c_ends_a_leading_program_and_gives_the_lease_back(sqlite_url: str, tmp_path: Any) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"""
import asyncio, fencehold
async def main():
    async with fencehold.connect({sqlite_url!r}) as store:
        await store.init()
        async with store.leader("x", lease="60s") as leader:
            async for term in leader.terms():
                async with term:
                    print("leading", flush=True)
                    await asyncio.sleep(3600)
asyncio.run(main())
""")
    # As from a terminal: a test run in the background hands SIGINT down ignored.
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(program), stdout=-1, stderr=-1,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"leading\n"
        child.send_signal(signal.SIGINT)
        _, errors = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    assert errors.decode().strip().endswith("KeyboardInterrupt")
    async with fencehold.connect(sqlite_url) as store:
        lease = await store.leases.read("x")
    assert lease is not None
    assert not lease.is_live


async def test_an_observer_ends_with_its_store_and_terms_can_be_asked_for_again() -> None:
    async with fencehold.connect("memory://observed") as store:
        leader = store.leader("x")
        seen = [who async for who in _until_closed(leader, store)]
    assert [who.epoch if who else None for who in seen] == [None, 1]


async def _until_closed(leader: fencehold.Leader, store: fencehold.Store) -> Any:
    watched = leader.observe()
    yield await anext(watched)
    await leader.start()
    yield await anext(watched)
    for _ in range(2):  # the second loop meets the same term again
        async for term in leader.terms():
            assert term.epoch == 1
            break
    closing = asyncio.ensure_future(store.close())
    async for who in watched:
        assert who is None
    await closing


async def test_two_openings_at_once_make_one_connection_and_one_thread() -> None:
    store = fencehold.connect("memory://opened-twice")
    await asyncio.gather(store.open(), store.open())
    (keeper,) = [thread for thread in threading.enumerate() if thread.name == "fencehold-keeper"]
    await store.close()
    await asyncio.to_thread(keeper.join, 10)
    assert not keeper.is_alive()


async def test_a_leader_shut_down_inside_its_own_body_is_gone_for_good() -> None:
    async with fencehold.connect("memory://inside") as store:
        async with store.leader("x", holder_id="me") as leader:
            async for term in leader.terms():
                async with term:
                    await leader.shutdown()
        async with store.leader("x", holder_id="me") as again:
            assert await again.wait_for_leadership(10)


def test_a_sync_callback_may_block_and_may_call_the_leader(sqlite_url: str) -> None:
    with fencehold.sync.connect(sqlite_url) as store:
        store.init()
        leader = store.leader("x", lease="60s")
        stepped_down = threading.Event()
        leader.on_acquired(lambda: leader.step_down(5))
        leader.on_released(stepped_down.set)
        with leader:
            assert stepped_down.wait(10)


def test_a_forked_child_of_a_sync_program_can_leave_its_blocks(sqlite_url: str) -> None:
    with fencehold.sync.connect(sqlite_url) as store:
        store.init()
        with store.leader("x", lease="60s") as leader:
            assert leader.wait_for_leadership(10)
            child = os.fork()
            if child:
                _, status = os.waitpid(child, 0)
                assert os.waitstatus_to_exitcode(status) == 0
                assert leader.is_leader
    if not child:
        os._exit(0)


async def test_a_callback_that_is_none_is_refused_at_once() -> None:
    async with fencehold.connect("memory://callbacks") as store:
        with pytest.raises(fencehold.ConfigurationError):
            store.leader("x").on_acquired(5)  # type: ignore[type-var]
        with pytest.raises(fencehold.ConfigurationError):
            await store.leases.list("\udcff")
