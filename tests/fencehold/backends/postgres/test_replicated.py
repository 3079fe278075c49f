"""durable="replicated": what was answered is on the standby, and what may not be there is no yes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest

import fencehold
import fencehold.sync
from fencehold.backends.postgres import backend as pg_backend
from fencehold.backends.postgres import commits
from fencehold.cli.setup import Setup
from fencehold.connect import backend_for
from fencehold.model.durable import durable
from fencehold.model.election.rules import Ask, Lease
from fencehold.model.errors import ConfigurationError, Unavailable, Uncertain
from fencehold.ports.backend import Backend
from submission_manager.model.intents import NewIntent
from submission_manager.settings import settings
from submission_manager.stores.opening import open_store
from tests.fencehold.cli.cli_process import fencehold_run, prepare
from tests.servers.pair import Pair, ask, until
from tests.servers.pgbouncer import PgBouncer
from tests.submission_manager.stores.scene import contract

LIMIT_S = 20.0
TABLE = "fencehold_leases"


class Facts:
    def __init__(self) -> None:
        self.told: list[str] = []

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append(event)


async def opened(url: str, level: str | None = "replicated") -> Backend:
    backend = backend_for(url, TABLE, None, durable(level))()
    await backend.schema.init(LIMIT_S)
    await backend.open(LIMIT_S)
    return backend


def request(name: str = "job") -> Ask:
    return Ask(name, "ada", 600.0, "one and the same")


# --- before anything is sent ---


@pytest.mark.parametrize("wrong", ["", "yes", "on", "REPLICATED", True, 1])
def test_a_wrong_word_is_refused_before_anything_is_sent(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="durable is") as caught:
        fencehold.connect("postgresql://nobody@192.0.2.1/none", durable=wrong)
    assert caught.value.code == "bad_durable"


@pytest.mark.parametrize("options", [{"durable": "replicated", "without_standby": "hope"}, {"without_standby": "warn"}])
def test_a_wrong_answer_to_no_standby_is_refused_before_anything_is_sent(options: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        fencehold.sync.connect("postgresql://nobody@192.0.2.1/none", **options)
    assert caught.value.code == "bad_durable"


@pytest.mark.parametrize(
    "address", ["sqlite:///x.db", "memory://x", "mssql://u@h/d", "cosmos://h/d?credential=default"]
)
def test_another_database_says_why_it_cannot(address: str) -> None:
    with pytest.raises(ConfigurationError, match="durable= is for PostgreSQL") as caught:
        fencehold.connect(address, durable="replicated")
    assert (caught.value.code, bool(caught.value.hint)) == ("durable_unsupported", True)


# --- opening ---


async def test_a_server_that_waits_for_nobody_is_refused_at_once(postgres_url: str) -> None:
    with pytest.raises(ConfigurationError, match="synchronous_standby_names is empty") as caught:
        await fencehold.connect(postgres_url, durable="replicated").open()
    assert caught.value.code == "no_standby"
    assert "pg_read_all_stats" in caught.value.message


async def test_or_used_with_one_warning_if_so_chosen(postgres_url: str) -> None:
    facts = Facts()
    options: dict[str, Any] = {"durable": "replicated", "without_standby": "warn", "facts": facts}
    async with fencehold.connect(postgres_url, **options) as store:
        await store.init()
        async with store.leader("x") as leader:
            assert await leader.wait_for_leadership(30)
            assert leader.term is not None
            async with leader.term.transaction() as tx:
                await tx.execute("CREATE TABLE t (a int)")
    assert facts.told.count("store_not_replicated") == 1


async def test_a_cluster_without_a_synchronous_standby_is_given_a_while(
    shared_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as Patroni may take to name the next one; then it is a mistake like any other."""
    backend = backend_for(shared_pair.primary.dsn(), TABLE, None, durable("replicated"))()
    with pytest.raises(Unavailable) as caught:
        await backend.open(LIMIT_S)
    assert caught.value.code == "no_standby"
    monkeypatch.setattr(pg_backend, "NO_STANDBY_PATIENCE_S", 0.0)  # as if it had waited
    with pytest.raises(ConfigurationError):
        await backend.open(LIMIT_S)
    await backend.close()


async def test_a_plain_role_can_ask_for_it(pair: Pair, url: str) -> None:
    ask(url, "DROP ROLE IF EXISTS plain")
    ask(url, "CREATE ROLE plain LOGIN")
    plain = url.replace("postgres@", "plain@")
    async with fencehold.connect(plain, durable="replicated", open_timeout=0):
        pass  # it is not refused


# --- what each commit asks for ---


@pytest.mark.parametrize(
    ("level", "during"), [(None, "off"), ("replicated", "on"), ("replicated_and_applied", "remote_apply")]
)
async def test_a_fenced_commit_asks_for_what_the_store_was_opened_with(url: str, level: Any, during: str) -> None:
    async with fencehold.connect(url, durable=level) as store:
        await store.init()
        async with store.leader("x") as leader, await psycopg.AsyncConnection.connect(url) as own:
            assert await leader.wait_for_leadership(30)
            assert leader.term is not None
            async with leader.term.transaction() as tx:
                assert await setting(tx.connection) == during
            await leader.term.fence(own)
            assert await setting(own) == during
            await own.rollback()
            guard = leader.term.guard()
            seen = await own.execute(f"SELECT 1 WHERE {guard}".encode(), guard.params)
            assert (await seen.fetchall(), await setting(own)) == ([(1,)], during)


async def setting(connection: psycopg.AsyncConnection[Any]) -> str:
    row = await (await connection.execute("SHOW synchronous_commit")).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize("verb", ["acquire", "renew", "release"])
async def test_a_lease_verb_is_not_answered_before_the_standby_has_it(pair: Pair, url: str, verb: str) -> None:
    backend = await opened(url)
    lease = await backend.leases.acquire(request(), LIMIT_S)
    assert isinstance(lease, Lease)
    verbs: dict[str, Callable[[], Any]] = {
        "acquire": lambda: backend.leases.acquire(request("other"), LIMIT_S),
        "renew": lambda: backend.leases.renew([lease.key(600.0)], LIMIT_S),
        "release": lambda: backend.leases.release([lease.key(600.0)], LIMIT_S),
    }
    pair.standby.freeze()
    asked = asyncio.ensure_future(verbs[verb]())
    await asyncio.to_thread(until_waiting, pair)
    assert not asked.done()
    pair.standby.thaw()
    await asked
    await backend.close()


def until_waiting(pair: Pair) -> None:
    until(pair.waiting)


@pytest.mark.needs("pgbouncer")
async def test_behind_a_pooler_it_is_the_same(pair: Pair, url: str, own_pgbouncer: Callable[..., PgBouncer]) -> None:
    await (await opened(url)).close()
    pooler = own_pgbouncer(pair.primary, "transaction")
    backend = backend_for(pooler.dsn(url.rpartition("/")[2]), TABLE, None, durable("replicated"))()
    await backend.open(LIMIT_S)
    lease = await backend.leases.acquire(request(), LIMIT_S)
    assert isinstance(lease, Lease)
    pair.standby.freeze()
    asked = asyncio.ensure_future(backend.leases.release([lease.key(600.0)], LIMIT_S))
    await asyncio.to_thread(until_waiting, pair)
    pair.standby.thaw()
    assert isinstance((await asked)[0], Lease)
    await backend.close()


# --- a wait that was cut short ---


@pytest.mark.parametrize("level", [None, "replicated"])
async def test_a_grant_whose_wait_was_cancelled_is_uncertain_and_known_again_once_it_is_replicated(
    pair: Pair, url: str, level: str | None
) -> None:
    backend = await opened(url, level)
    for _ in ("granted", "recognised by its nonce"):
        pair.standby.freeze()
        asked = asyncio.ensure_future(backend.leases.acquire(request(), LIMIT_S))
        await asyncio.to_thread(pair.cut_waits)
        with pytest.raises(Uncertain) as caught:
            await asked
        assert caught.value.code == "not_replicated"
    pair.standby.thaw()
    lease = await backend.leases.acquire(request(), LIMIT_S)
    assert isinstance(lease, Lease)
    assert lease.epoch == 1
    await backend.close()


async def write_and_cut_the_wait(pair: Pair, term: fencehold.Term) -> None:
    async with term.transaction() as tx:
        await tx.execute("CREATE TABLE t AS SELECT 1 AS a")
        pair.standby.freeze()
        cutting = asyncio.ensure_future(asyncio.to_thread(pair.cut_waits))
        cutting.add_done_callback(lambda done: done.result())


async def test_a_fenced_commit_whose_wait_was_cancelled_is_uncertain(pair: Pair, url: str) -> None:
    async with fencehold.connect(url, durable="replicated") as store:
        await store.init()
        async with store.leader("x", lease="60s") as leader:
            assert await leader.wait_for_leadership(30)
            assert leader.term is not None
            with pytest.raises(Uncertain, match="cut short"):
                await write_and_cut_the_wait(pair, leader.term)
            pair.standby.thaw()
    assert ask(url, "SELECT a FROM t") == [(1,)]


def write_while_the_standby_is_taken_out(pair: Pair, term: fencehold.sync.Term) -> None:
    with term.transaction() as tx:
        tx.execute("CREATE TABLE t (a int)")
        pair.wait_for("")


def test_without_an_event_loop_too(pair: Pair, url: str) -> None:
    with fencehold.sync.connect(url, durable="replicated") as store:
        store.init()
        with store.leader("x", lease="60s") as leader:
            assert leader.wait_for_leadership(30)
            assert leader.term is not None
            with pytest.raises(Uncertain, match="waits for no standby any more"):
                write_while_the_standby_is_taken_out(pair, leader.term)
            pair.wait_for("*")


async def test_a_commit_of_the_callers_own_whose_wait_was_cancelled_is_told(pair: Pair, url: str) -> None:
    facts = Facts()
    async with fencehold.connect(url, durable="replicated", facts=facts) as store:
        await store.init()
        async with store.leader("x", lease="60s") as leader, await psycopg.AsyncConnection.connect(url) as own:
            assert await leader.wait_for_leadership(30)
            assert leader.term is not None
            await leader.term.fence(own)
            await own.execute("CREATE TABLE t (a int)")
            pair.standby.freeze()
            cutting = asyncio.ensure_future(asyncio.to_thread(pair.cut_waits))
            await own.commit()
            await cutting
            pair.standby.thaw()
    assert facts.told.count("commit_not_replicated") == 1


async def test_a_grant_whose_standby_was_taken_out_while_it_waited_is_uncertain(pair: Pair, url: str) -> None:
    """The server then ends the wait without a word, as if the standby had answered."""
    backend = await opened(url)
    pair.standby.freeze()
    asked = asyncio.ensure_future(backend.leases.acquire(request(), LIMIT_S))
    await asyncio.to_thread(until_waiting, pair)
    await asyncio.to_thread(pair.wait_for, "")
    with pytest.raises(Uncertain, match="waits for no standby any more"):
        await asked
    await backend.close()


async def test_without_a_standby_nothing_is_granted_until_there_is_one_again(pair: Pair, url: str) -> None:
    backend = await opened(url)
    pair.wait_for("")
    with pytest.raises(Uncertain):  # the first to learn of it
        await backend.leases.acquire(request("first"), LIMIT_S)
    with pytest.raises(Unavailable) as caught:
        await backend.leases.acquire(request(), LIMIT_S)
    assert caught.value.code == "no_standby"
    assert await backend.leases.read(["job"], LIMIT_S) == {}
    pair.wait_for("*")
    assert isinstance(await backend.leases.acquire(request(), LIMIT_S), Lease)
    await backend.close()


async def test_without_a_standby_no_fenced_transaction_can_commit(pair: Pair, url: str) -> None:
    async with fencehold.connect(url, durable="replicated") as store:
        await store.init()
        async with store.leader("x", lease="60s") as leader, await psycopg.AsyncConnection.connect(url) as own:
            assert await leader.wait_for_leadership(30)
            assert leader.term is not None
            pair.wait_for("")
            with pytest.raises(Unavailable, match="synchronous_standby_names is empty"):
                async with leader.term.transaction():
                    pass
            await own.execute("CREATE TABLE t (a int)")
            with pytest.raises(Unavailable, match="synchronous_standby_names is empty"):
                await leader.term.fence(own)
            with suppress(psycopg.Error):
                await own.commit()
            assert leader.term.is_valid
    assert ask(url, "SELECT to_regclass('t')") == [(None,)]


async def test_a_warning_of_the_databases_own_functions_is_not_taken_for_it(pair: Pair, url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as own:
        commits.watch(own)
        await own.execute("DO $$ BEGIN RAISE WARNING 'canceling wait for synchronous replication'; END $$")
        commits.must_have_waited(own)


async def test_an_outbox_and_items_of_the_store_wait_for_the_standby_too(pair: Pair, url: str) -> None:
    async with fencehold.connect(url, durable="replicated") as store:
        outbox, items = store.outbox(), store.items("deal")
        await store.init()
        await outbox.add("a", 1)
        await items.put("0", state="NEW", document={})
        for verb in (outbox.add("a", 2), items.put("1", state="NEW", document={})):
            pair.standby.freeze()
            asked = asyncio.ensure_future(verb)
            await asyncio.to_thread(until_waiting, pair)
            pair.standby.thaw()
            await asked


# --- the service and the commands ---


async def test_an_intent_of_the_service_is_not_taken_before_the_standby_has_it(pair: Pair, url: str) -> None:
    store = open_store(url, "replicated")
    await store.init()
    await store.open()
    pair.standby.freeze()
    asked = asyncio.ensure_future(store.intake.submit(NewIntent("i1", b"{}", contract()), LIMIT_S))
    await asyncio.to_thread(until_waiting, pair)
    pair.standby.thaw()
    await asked
    await store.close()


def test_a_wrong_word_in_the_settings_of_the_service_is_named() -> None:
    with pytest.raises(ConfigurationError, match="SM_DURABLE"):
        settings({}, {"SM_DURABLE": "yes"})


def test_a_wrong_word_in_the_variable_of_the_commands_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEHOLD_DURABLE", "yes")
    with pytest.raises(ConfigurationError) as caught:
        Setup("postgresql://nobody@192.0.2.1/none").patient_store(Facts())
    assert caught.value.code == "bad_durable"
    assert caught.value.message.startswith("FENCEHOLD_DURABLE is 'yes'")
    assert 'FENCEHOLD_WITHOUT_STANDBY="warn"' in caught.value.hint


def test_the_variables_of_the_commands_are_named_where_there_is_no_standby_to_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FENCEHOLD_WITHOUT_STANDBY", "warn")
    with pytest.raises(ConfigurationError, match="FENCEHOLD_WITHOUT_STANDBY was given and FENCEHOLD_DURABLE was not"):
        Setup("postgresql://nobody@192.0.2.1/none").patient_store(Facts())
    monkeypatch.setenv("FENCEHOLD_DURABLE", "replicated")
    with pytest.raises(ConfigurationError, match="FENCEHOLD_DURABLE is for PostgreSQL") as caught:
        Setup("sqlite:///none.db").patient_store(Facts())
    assert "Leave FENCEHOLD_DURABLE out" in caught.value.hint


def test_a_command_goes_on_without_a_standby_by_the_variable_that_its_hint_names(postgres_url: str) -> None:
    prepare(postgres_url)
    words, asked = ("run", "nightly", "--no-wait", "--", "true"), {"FENCEHOLD_DURABLE": "replicated"}
    code, _, err = fencehold_run(postgres_url, *words, env=asked)
    assert (code, "no_standby" in err, "FENCEHOLD_WITHOUT_STANDBY=warn" in err) == (78, True, True)
    code, _, err = fencehold_run(postgres_url, *words, env={**asked, "FENCEHOLD_WITHOUT_STANDBY": "warn"})
    assert (code, "warning: synchronous_standby_names is empty" in err) == (0, True), err
