"""A primary that became a standby under open connections: whoever used it is at the new one, and none dies of it."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import fencehold
from fencehold.backends.postgres import hosts, wire
from fencehold.backends.postgres.backend import PostgresBackend
from fencehold.backends.postgres.session import Session
from fencehold.connect import backend_for
from fencehold.model.election.rules import Ask, Lease
from fencehold.model.errors import Unavailable
from pgleaderlock import LeaderLock
from submission_manager.model.intents import NewIntent
from submission_manager.stores.opening import open_store
from tests.fencehold.backends.postgres.test_several_hosts import Silent
from tests.servers.pair import Pair, ask, running_pair, until
from tests.servers.postgres import binaries_of
from tests.submission_manager.stores.scene import contract

LIMIT_S = 20.0
TABLE = "fencehold_leases"
CLIENTS = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


@pytest.fixture
def pair() -> Iterator[Pair]:
    with running_pair(binaries_of()) as pair:
        yield pair


def demote(pair: Pair) -> None:
    """The standby is promoted, and the old primary takes no writes on connections that stay open."""
    lsn = ask(pair.primary.dsn(), "SELECT pg_current_wal_lsn()")[0][0]
    until(lambda: ask(pair.standby.dsn(), f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{lsn}'"))
    pair.promote()
    ask(pair.primary.dsn(), "ALTER SYSTEM SET default_transaction_read_only = on")
    ask(pair.primary.dsn(), "SELECT pg_reload_conf()")
    until(lambda: ask(pair.primary.dsn(), "SHOW transaction_read_only") == [("on",)])


@pytest.mark.long
async def test_a_leader_goes_on_under_its_epoch_at_the_new_primary(pair: Pair) -> None:
    async with fencehold.connect(pair.url()) as store:
        await store.init()
        async with store.leader("x", lease="30s", renew_every="1s") as leader:
            assert await leader.wait_for_leadership(30)
            term = leader.term
            assert term is not None
            await asyncio.to_thread(demote, pair)
            async with term.transaction() as tx:
                await tx.execute("CREATE TABLE t (a int)")
            await asyncio.to_thread(until, lambda: renewed_at(pair))
            assert (term.is_valid, term.epoch) == (True, 1)
    assert ask(pair.standby.dsn(), "SELECT to_regclass('t')::text") == [("t",)]


def renewed_at(pair: Pair) -> Any:
    """By the new primary: after it was promoted."""
    return ask(pair.standby.dsn(), f"SELECT 1 FROM {TABLE} WHERE renewed_at > clock_timestamp() - interval '0.9 s'")


@pytest.mark.long
async def test_a_follower_hears_at_the_new_primary_of_a_release(pair: Pair) -> None:
    async with fencehold.connect(pair.url()) as one, fencehold.connect(pair.url()) as two:
        await one.init()
        settings: dict[str, Any] = {"lease": "600s", "renew_every": "1s", "acquire_every": "1s"}
        async with one.leader("x", **settings) as first, two.leader("x", holder_id="two", **settings) as second:
            assert await first.wait_for_leadership(30)
            await asyncio.to_thread(demote, pair)
            await asyncio.to_thread(until, lambda: renewed_at(pair))
            await first.shutdown()
            assert await second.wait_for_leadership(30)


@pytest.mark.long
async def test_the_sessions_of_holder_and_follower_are_at_the_new_primary_within_one_renewal_interval(
    pair: Pair,
) -> None:
    """When the old one is stopped, as Patroni does to demote it. The follower's own poll would come too late."""
    renew_s, slack_s = 5.0, 1.0
    settings: dict[str, Any] = {"lease": "60s", "renew_every": renew_s, "acquire_every": "50s"}
    async with fencehold.connect(pair.url()) as one, fencehold.connect(pair.url()) as two:
        await one.init()
        async with one.leader("x", **settings) as first, two.leader("x", holder_id="two", **settings) as second:
            assert await first.wait_for_leadership(30)
            await asyncio.to_thread(until, lambda: len(ask(pair.primary.dsn(), CLIENTS)) >= 2)
            await asyncio.to_thread(pair.promote)
            await asyncio.to_thread(pair.primary.stop)
            async with asyncio.timeout(renew_s + slack_s):
                await asyncio.to_thread(until, lambda: renewed_at(pair) and len(ask(pair.standby.dsn(), CLIENTS)) >= 2)
            await first.shutdown()
            assert await second.wait_for_leadership(20)


@pytest.mark.long
async def test_an_outbox_and_items_and_the_service_go_on_at_the_new_primary(pair: Pair) -> None:
    service = open_store(pair.url())
    async with fencehold.connect(pair.url()) as store:
        outbox, items = store.outbox(), store.items("deal")
        await store.init()
        await service.init()
        await service.intake.submit(NewIntent("i1", b"{}", contract()), LIMIT_S)
        await outbox.add("a", 1)
        await items.put("1", state="NEW", document={})
        await asyncio.to_thread(demote, pair)
        await outbox.add("a", 2)
        await items.put("2", state="NEW", document={})
        await outbox.add_many([("a", n) for n in range(3)])
        await service.intake.submit(NewIntent("i2", b"{}", contract()), LIMIT_S)
    await service.close()
    assert ask(pair.standby.dsn(), "SELECT count(*) FROM outbox") == [(5,)]


@pytest.mark.long
async def test_a_read_only_server_is_waited_out_within_the_calls_own_limit(pair: Pair) -> None:
    backend = backend_for(pair.primary.dsn())()
    await backend.schema.init(LIMIT_S)
    await backend.open(LIMIT_S)
    ask(pair.primary.dsn(), "ALTER SYSTEM SET default_transaction_read_only = on")
    ask(pair.primary.dsn(), "SELECT pg_reload_conf()")
    until(lambda: ask(pair.primary.dsn(), "SHOW transaction_read_only") == [("on",)])
    with pytest.raises(Unavailable, match="read-only") as caught:
        await backend.leases.acquire(Ask("x", "me", 1.0, ""), 0.5)
    assert caught.value.code == "read_only"
    asked = asyncio.ensure_future(backend.leases.acquire(Ask("x", "me", 1.0, ""), LIMIT_S))
    await asyncio.sleep(0.3)
    assert not asked.done()
    ask(pair.primary.dsn() + "?options=-cdefault_transaction_read_only%3Doff", "ALTER SYSTEM RESET ALL")
    ask(pair.primary.dsn(), "SELECT pg_reload_conf()")
    assert isinstance(await asked, Lease)
    await backend.close()


async def test_without_time_to_ask_again_the_refusal_is_the_reason(postgres_url: str) -> None:
    session = Session(postgres_url, PostgresBackend(postgres_url, "fencehold_leases").schema._statements)
    answers = iter(["read_only", "unreachable"])

    async def ask_once(left_s: float) -> None:
        code = next(answers)
        if code == "unreachable":
            await asyncio.sleep(left_s + 0.01)
        raise Unavailable(f"It is {code}.", code=code)

    session._has_worked = True
    with pytest.raises(Unavailable) as caught:
        await session._following(ask_once, 0.3)
    assert caught.value.code == "read_only"


@pytest.mark.long
async def test_an_error_says_that_the_host_has_become_a_standby(pair: Pair) -> None:
    """On a connection to the standby that nobody kept from it."""
    url = pair.standby.dsn() + "?target_session_attrs=any"
    session = backend_for(url)()
    await backend_for(pair.primary.dsn())().schema.init(LIMIT_S)
    until(lambda: ask(pair.standby.dsn(), f"SELECT to_regclass('{TABLE}')") != [(None,)])
    with pytest.raises(Unavailable, match=rf"127\.0\.0\.1:{pair.standby.port} has become a standby") as caught:
        await session.leases.acquire(Ask("x", "me", 1.0, ""), LIMIT_S)
    assert caught.value.code == "read_only"
    with pytest.raises(Unavailable, match="a standby, or default_transaction_read_only is on"):
        await backend_for(pair.standby.dsn())().open(LIMIT_S)
    await session.close()


@pytest.mark.long
async def test_a_standby_that_is_promoted_while_its_old_primary_says_nothing_is_found_at_once(pair: Pair) -> None:
    info = wire.conninfo(pair.url())
    port = pair.primary.port
    wire.leave(await wire.connect(info, LIMIT_S, autocommit=True))
    pair.primary.kill9()
    silent = Silent("127.0.0.1", port)
    try:
        refused: list[Exception] = []
        asked = asyncio.ensure_future(wire.connect(info, LIMIT_S, autocommit=True, errors=refused))
        await asyncio.to_thread(until, lambda: refused and silent.asked())
        await asyncio.to_thread(pair.promote)
        began_s = asyncio.get_running_loop().time()
        connection = await asked
        assert connection.info.port == pair.standby.port
        assert asyncio.get_running_loop().time() - began_s < LIMIT_S / 2
        wire.leave(connection)
    finally:
        silent.close()


async def test_a_host_that_said_nothing_is_asked_last_until_it_speaks(postgres_url: str) -> None:
    silent = Silent()
    real = psycopg.conninfo.conninfo_to_dict(postgres_url)
    url = f"postgresql://{real['user']}@127.0.0.1:{silent.port},127.0.0.1:{real['port']}/{real['dbname']}"
    info = wire.conninfo(url)
    wire.leave(await wire.connect(info, LIMIT_S, autocommit=True))
    hosts._answered_last.pop(info)
    before = silent.asked()
    wire.leave(await wire.connect(info, LIMIT_S, autocommit=True))
    assert silent.asked() == before
    silent.close()
    hosts.spoke(info, ("127.0.0.1", str(silent.port), "127.0.0.1"))
    assert hosts.in_order(info, hosts.places(info))[0][1] == str(real["port"])


@pytest.mark.long
async def test_a_name_that_moves_is_followed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, leads_to = socket.getaddrinfo, ["127.0.0.1"]
    other = pair.standby.port

    def moving(host: Any, port: Any, *args: Any, **options: Any) -> list[Any]:
        return resolve(leads_to[0] if host == "db.invalid" else host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", moving)
    relay = await asyncio.start_server(lambda r, w: relayed(r, w, other), "127.0.0.2", pair.primary.port)
    async with fencehold.connect(f"postgresql://postgres@db.invalid:{pair.primary.port}/postgres") as store:
        await store.init()
        async with store.leader("x", lease="30s", renew_every="1s") as leader:
            assert await leader.wait_for_leadership(30)
            assert leader.term is not None
            leads_to[0] = "127.0.0.2"
            await asyncio.to_thread(demote, pair)
            await asyncio.to_thread(until, lambda: renewed_at(pair))
            assert leader.term.is_valid
    relay.close()


async def relayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """To the server at `port` and back: what the name leads to after it has moved."""
    there, back = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(copied(reader, back), copied(there, writer), return_exceptions=True)


async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.long
async def test_an_advisory_lock_is_held_at_the_new_primary_when_the_old_one_has_stopped(pair: Pair) -> None:
    lock = LeaderLock(pair.url(), 1, 2, health_interval_s=0.5)
    async with lock:
        assert await lock.wait_for_leadership(30)
        await asyncio.to_thread(pair.promote)
        await asyncio.to_thread(pair.primary.stop)
        held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted"
        await asyncio.to_thread(until, lambda: ask(pair.standby.dsn(), held))
        assert await lock.wait_for_leadership(30)


async def test_a_connection_that_ended_while_nobody_asked_is_replaced_without_a_word(postgres_url: str) -> None:
    async with fencehold.connect(postgres_url) as store:
        items = store.items("deal")
        await store.init()
        await items.put("0", state="NEW", document={})
        others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        ask(postgres_url, f"{others} AND datname = current_database()")
        await items.put("1", state="NEW", document={})
