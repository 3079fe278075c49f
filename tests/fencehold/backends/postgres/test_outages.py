"""Who is started into an outage waits and says so; who made a mistake is told at first contact. Never the other way."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fencehold
from fencehold.backends.postgres.backend import PostgresBackend
from fencehold.backends.postgres.session import Session
from fencehold.runtime.election import lease_mechanism
from fencehold.runtime.store import try_limits_s
from tests.fencehold.runtime.outbox.scene import Heard, running
from tests.servers.postgres import PostgresServer
from tests.servers.roles import PASSWORD, Role


async def prepared(url: str) -> None:
    async with fencehold.connect(url) as store:
        store.outbox(), store.items("any")
        await store.init()


@asynccontextmanager
async def in_background(work: Any) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, fencehold.FenceholdError):
            await task


@pytest.fixture
def role(postgres_url: str) -> Iterator[Role]:
    asyncio.run(prepared(postgres_url))
    role = Role(postgres_url, f"clerk_{psycopg.conninfo.conninfo_to_dict(postgres_url)['dbname']}")
    role.may_use_all_tables()
    yield role
    role.drop()


# Outages: waited for, and said


async def test_a_store_opened_while_the_server_is_down_waits_and_says_so(own_postgres: PostgresServer) -> None:
    heard = Heard()
    own_postgres.stop()
    store = fencehold.connect(own_postgres.dsn(), facts=heard)
    async with in_background(store.open()) as opening:
        said = await heard.once("store_unreachable")
        assert (said["code"], said["waited_s"]) == ("unreachable", 0)
        own_postgres.start()
        await asyncio.wait_for(opening, 30)
        await heard.once("store_answers")
        await store.init()
        await store.close()


async def test_a_store_that_may_wait_only_so_long_says_why_it_gave_up(own_postgres: PostgresServer) -> None:
    own_postgres.stop()
    with pytest.raises(fencehold.Unavailable) as caught:
        await fencehold.connect(own_postgres.dsn(), open_timeout="300ms").open()
    assert caught.value.code == "unreachable"


@pytest.mark.fault("server-restart", "leader")
@pytest.mark.fault("server-restart", "outbox")
async def test_a_candidate_and_a_worker_started_into_an_outage_lead_and_work_when_it_is_over(
    own_postgres: PostgresServer,
) -> None:
    heard, url, done = Heard(), own_postgres.dsn(), asyncio.Event()
    await prepared(url)

    async def handle(event: Any) -> None:
        done.set()

    async with fencehold.connect(url, facts=heard) as store:
        own_postgres.stop()
        leader = store.leader("x", lease="2s", acquire_every="100ms")
        worker = store.outbox().worker(handle, worker_id="w", poll_every="100ms")
        async with in_background(leader.start()), running(worker):
            await heard.once("store_unreachable", lease_name="x")
            await heard.once("store_unreachable", worker_id="w")
            own_postgres.start()
            assert await leader.wait_for_leadership(30)
            await heard.once("store_answers", lease_name="x")
            await heard.once("store_answers", worker_id="w")
            assert await store.outbox().add("a", 1)
            await asyncio.wait_for(done.wait(), 30)
            await leader.shutdown()


@pytest.mark.fault("read-only", "leader")
@pytest.mark.parametrize("hot", ["on", "off"])
async def test_a_server_that_takes_no_writes_or_is_still_starting_is_an_outage(
    own_postgres: PostgresServer, hot: str
) -> None:
    """25006 (a standby that can be read), and 57P03 (one that cannot)."""
    heard = Heard()
    await prepared(own_postgres.dsn())
    own_postgres.stop()
    signal = Path(own_postgres.folder) / "data" / "standby.signal"
    signal.touch()
    own_postgres.settings["hot_standby"] = hot
    own_postgres.begin()
    store = fencehold.connect(own_postgres.dsn(), facts=heard)
    async with in_background(store.open()) as opening:
        await heard.once("store_unreachable", code="read_only" if hot == "on" else "starting")
        with pytest.raises(fencehold.Unavailable) as refused:
            await fencehold.connect(own_postgres.dsn()).open(0)
        assert hot == "off" or refused.value.hint.startswith("This is a replica")
        own_postgres.stop()
        signal.unlink()
        own_postgres.start()
        await asyncio.wait_for(opening, 30)
        await store.close()


async def test_too_many_connections_are_an_outage(own_postgres: PostgresServer) -> None:
    heard = Heard()
    own_postgres.settings |= {"max_connections": "5", "superuser_reserved_connections": "0"}
    own_postgres.restart()
    await prepared(own_postgres.dsn())
    taken = [psycopg.connect(own_postgres.dsn()) for _ in range(5)]
    store = fencehold.connect(own_postgres.dsn(), facts=heard)
    async with in_background(store.open()) as opening:
        await heard.once("store_unreachable", code="too_many_connections")
        for one in taken:
            one.close()
        await asyncio.wait_for(opening, 30)
        await store.close()


async def test_a_name_that_cannot_be_resolved_is_an_outage() -> None:
    heard = Heard()
    store = fencehold.connect("postgresql://me@no-such-host.invalid/db", facts=heard)
    async with in_background(store.open()) as opening:
        said = await heard.once("store_unreachable", code="unreachable")
        assert "no-such-host.invalid" in said["error"]
        assert not opening.done()


@pytest.mark.parametrize("timeout_s", [None, 60.0])
async def test_a_server_that_says_nothing_is_spoken_of_within_five_seconds(timeout_s: float | None) -> None:
    heard = Heard()
    kept: list[asyncio.StreamWriter] = []  # one that nobody keeps is closed, from Python 3.13 on
    silent = await asyncio.start_server(lambda r, w: kept.append(w), "127.0.0.1", 0)
    store = fencehold.connect(f"postgresql://me@127.0.0.1:{silent.sockets[0].getsockname()[1]}/db", facts=heard)
    async with in_background(store.open(timeout_s)):
        said = await heard.once("store_unreachable", code="unreachable")
        assert "within 4.0 s" in said["error"], "the first try is short, so that the first word comes soon"
    silent.close()


@pytest.mark.parametrize(
    ("limit_s", "tries_s"),
    [(None, [4, 10, 10]), (60.0, [4, 10, 10]), (6.0, [4, 6, 6]), (3.0, [3, 3, 3]), (0, [10, 10, 10])],
)
def test_later_tries_have_the_time_that_a_slow_server_needs(limit_s: float | None, tries_s: list[float]) -> None:
    assert list(itertools.islice(try_limits_s(limit_s), 3)) == tries_s


async def test_a_leader_started_on_a_frozen_server_says_so_while_its_first_attempt_waits(
    own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_mechanism, "FIRST_WORD_S", 0.5)
    await prepared(own_postgres.dsn())
    heard = Heard()
    async with fencehold.connect(own_postgres.dsn(), facts=heard) as store:
        leader = store.leader("x")
        own_postgres.freeze()
        try:
            async with in_background(leader.start()):
                await heard.once("store_unreachable", code="no_answer_yet", lease_name="x")
                assert not heard.all("leader_acquire_failed"), "before the attempt has come to its end"
        finally:
            own_postgres.thaw()
        async with leader:
            assert await leader.wait_for_leadership(60)


async def test_a_leader_is_not_held_up_by_the_wait_for_notifications(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepared(postgres_url)

    async def never(session: Session, limit_s: float) -> bool:
        await asyncio.Event().wait()
        return False

    monkeypatch.setattr(Session, "listen", never)
    async with fencehold.connect(postgres_url) as store, store.leader("x") as leader:
        assert await leader.wait_for_leadership(30)


# Mistakes: told at first contact, with what is missing


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"user": "nobody_of_this_name"}, "login_refused"),
        ({"dbname": "no_such_database"}, "no_such_database"),
        ({"sslmode": "require"}, "tls_refused"),
    ],
)
async def test_a_login_that_is_refused_is_a_mistake(postgres_url: str, wrong: dict[str, str], code: str) -> None:
    given = {**psycopg.conninfo.conninfo_to_dict(postgres_url), **wrong}
    url = f"postgresql://{given['user']}@127.0.0.1:{given['port']}/{given['dbname']}"
    url += f"?sslmode={given['sslmode']}" if "sslmode" in given else ""
    with pytest.raises(fencehold.ConfigurationError) as caught:
        await fencehold.connect(url).open()
    assert caught.value.code == code


async def test_a_wrong_password_is_a_mistake_and_is_not_shown(own_postgres: PostgresServer) -> None:
    role = Role(own_postgres.dsn(), "clerk")
    with own_postgres.asking_for_passwords():
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await fencehold.connect(role.url.replace(PASSWORD, "wrong-word")).open()
        assert caught.value.code == "login_refused"
        assert "wrong-word" not in str(caught.value)


async def test_a_role_that_may_not_connect_is_a_mistake(role: Role) -> None:
    dbname = psycopg.conninfo.conninfo_to_dict(role.url)["dbname"]
    role.owner_says(f"REVOKE CONNECT ON DATABASE {dbname} FROM PUBLIC, {{}}")
    with pytest.raises(fencehold.ConfigurationError) as caught:
        await fencehold.connect(role.url).open()
    assert caught.value.code == "no_permission"


@pytest.mark.parametrize("right", ["INSERT", "UPDATE", "SELECT"])
async def test_a_leader_that_lacks_a_right_ends_at_first_contact(role: Role, right: str) -> None:
    role.owner_says(f"REVOKE {right} ON fencehold_leases FROM {{}}")
    async with fencehold.connect(role.url, facts=Heard()) as store:
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await store.leader("x").start()
        assert caught.value.code == "no_permission"
        assert "fencehold_leases" in caught.value.message


async def test_a_worker_whose_reaper_lacks_a_right_ends_at_first_contact(role: Role) -> None:
    role.owner_says("REVOKE UPDATE ON fencehold_leases FROM {}")
    async with fencehold.connect(role.url, facts=Heard()) as store, asyncio.timeout(30):
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await store.outbox().worker(print).run()
        assert caught.value.code == "no_permission"


async def test_a_mistake_that_shows_only_after_an_outage_ends_the_leader_and_is_raised(
    own_postgres: PostgresServer,
) -> None:
    heard = Heard()
    async with fencehold.connect(own_postgres.dsn(), facts=heard) as store:
        own_postgres.stop()
        leader = store.leader("x", lease="2s", acquire_every="100ms")
        await leader.start()
        own_postgres.start()
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await leader.wait_for_leadership(30)
        assert caught.value.code == "schema_missing"
        with pytest.raises(fencehold.ConfigurationError):
            await anext(leader.terms())


# Who has worked once retries either kind, and warns


async def test_a_leader_whose_right_is_revoked_warns_and_leads_again_when_it_has_it(role: Role) -> None:
    heard = Heard()
    async with (
        fencehold.connect(role.url, facts=heard) as store,
        store.leader("x", lease="1s", acquire_every="100ms") as leader,
    ):
        assert await leader.wait_for_leadership(30)
        role.owner_says("REVOKE UPDATE ON fencehold_leases FROM {}")
        await heard.once("leader_renew_failed")
        await heard.once("leader_lost")
        await heard.once("store_unreachable", code="no_permission", lease_name="x")
        role.owner_says("GRANT UPDATE ON fencehold_leases TO {}")
        assert await leader.wait_for_leadership(30)


async def test_a_follower_whose_table_is_gone_says_so_and_leads_when_its_turn_comes(postgres_url: str) -> None:
    await prepared(postgres_url)
    heard = Heard()
    settings: Any = {"lease": "2s", "acquire_every": "200ms"}
    async with fencehold.connect(postgres_url) as other, fencehold.connect(postgres_url, facts=heard) as store:
        holder, follower = other.leader("x", **settings), store.leader("x", **settings)
        async with holder, await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as owner:
            assert await holder.wait_for_leadership(30)
            async with follower:
                await heard.once("leader_acquire_failed", held_by=holder.holder_id)
                await owner.execute("ALTER TABLE fencehold_leases RENAME TO away")
                said = await heard.once("store_unreachable", code="schema_missing")
                assert said["following"] == ["x"]
                await owner.execute("ALTER TABLE away RENAME TO fencehold_leases")
                await heard.once("store_answers")
                await holder.shutdown()
                assert await follower.wait_for_leadership(30)


async def test_a_leader_whose_password_was_changed_warns_and_leads_again_when_it_fits(
    own_postgres: PostgresServer,
) -> None:
    heard = Heard()
    await prepared(own_postgres.dsn())
    role = Role(own_postgres.dsn(), "clerk")
    role.may_use_all_tables()
    with own_postgres.asking_for_passwords():
        async with (
            fencehold.connect(role.url, facts=heard) as store,
            store.leader("x", lease="1s", acquire_every="100ms") as leader,
        ):
            assert await leader.wait_for_leadership(30)
            role.owner_says("ALTER ROLE {} PASSWORD {}", "another")
            role.cut_off()
            await heard.once("store_unreachable", code="login_refused", lease_name="x")
            role.owner_says("ALTER ROLE {} PASSWORD {}", PASSWORD)
            assert await leader.wait_for_leadership(30)


async def test_a_server_that_stands_still_is_told_as_such_to_whoever_waits_for_its_connection() -> None:
    session = PostgresBackend("postgresql://127.0.0.1/any", "leases")._session
    async with session._lock:  # a statement is under way
        with pytest.raises(fencehold.Unavailable) as caught:
            await session.run("any", {}, 0.01)
    assert caught.value.code == "no_answer"
    assert "PostgreSQL has not answered an earlier statement" in caught.value.message
