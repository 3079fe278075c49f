"""What a client submitted is stored once, as it was, and told apart from what merely bears the same id."""

import asyncio
import datetime as dt
import hashlib
import sqlite3
from collections import Counter
from contextlib import closing

import psycopg
import pytest

from fencehold import ConfigurationError
from submission_manager.model.intents import NewIntent, Status
from submission_manager.model.outcomes import Answer, Outcome
from submission_manager.ports import Started, Submission
from submission_manager.stores.opening import Store, open_store
from tests.submission_manager.stores.scene import LIMIT_S, ONE_SHOT, TWICE, contract, run_on_sqlserver, scene


async def test_a_new_intent_is_pending_and_due_at_once_by_the_clock_of_the_database(url):
    async with scene(url) as at:
        answer = await at.submit("a", payload=b'{"x": 1}')
        assert answer.kind is Submission.CREATED
        assert (answer.intent.status, answer.intent.attempt_count) == (Status.PENDING, 0)
        assert answer.intent == await at.store.intake.read("a", LIMIT_S)
        times = {at.column("a", name) for name in ("created_at", "updated_at", "last_modified_at", "next_attempt_at")}
        assert len(times) == 1
        assert bytes(at.column("a", "payload")) == b'{"x": 1}'
        assert bytes(at.column("a", "payload_hash")) == hashlib.sha256(b'{"x": 1}').digest()
        assert answer.intent.created_at.utcoffset() == dt.timedelta(0)


async def test_the_same_again_is_known_and_anything_else_under_its_id_is_a_conflict(url):
    async with scene(url) as at:
        first = await at.submit("a", payload=b"{}")
        before = at.everything()
        assert await at.submit("a", payload=b"{}") == type(first)(Submission.KNOWN, first.intent)
        for again in (at.submit("a", payload=b"{ }"), at.submit("a", contract(submission_target="sms.other"))):
            answer = await again
            assert answer == type(first)(Submission.CONFLICT, first.intent)
        assert at.everything() == before


async def test_no_payload_and_json_null_differ(url):
    async with scene(url) as at:
        await at.submit("absent", payload=None)
        await at.submit("null", payload=b"null")
        kinds = [
            (await at.submit(one, payload=payload)).kind for one in ("absent", "null") for payload in (None, b"null")
        ]
        same, other = Submission.KNOWN, Submission.CONFLICT
        assert kinds == [same, other, other, same]
        assert (at.column("absent", "payload"), bytes(at.column("null", "payload"))) == (None, b"null")


async def test_ids_are_compared_byte_by_byte(url):
    async with scene(url) as at:
        ids = ["abc", "ABC", " abc", "äbc", "a\u0308bc", '"\\%22', "x" * 200, "x" * 199 + "\N{GRINNING FACE}"]
        ids += [] if at.dialect == "sqlserver" else ["abc "]
        for one in ids:
            assert (await at.submit(one)).kind is Submission.CREATED
        rows, _ = await at.rebuilt()
        assert sorted(row.intent_id for row in rows) == sorted(ids)


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\0b", "a\ud800"])
async def test_an_id_that_no_database_keeps_is_refused_before_anything_is_sent(bad):
    with pytest.raises(ConfigurationError):
        await open_store("sqlite:////nowhere/at/all.db").intake.submit(NewIntent(bad, None, ONE_SHOT), LIMIT_S)


async def test_a_webhook_is_owed_only_where_the_contract_has_one(url):
    async with scene(url) as at:
        await at.submit("with", TWICE)
        await at.submit("without", ONE_SHOT)
        assert (at.column("with", "webhook_status"), at.column("without", "webhook_status")) == ("pending", None)


async def test_of_many_at_once_under_one_id_exactly_one_is_created(url):
    async with scene(url) as at:
        stores = [at.store, await at.another()]
        news = [NewIntent(f"i{n % 20}", b"{}", contract()) for n in range(200)]
        work = [stores[n % 2].intake.submit(new, LIMIT_S) for n, new in enumerate(news)]
        answers = await asyncio.gather(*work)
        assert Counter(answer.kind for answer in answers) == {Submission.CREATED: 20, Submission.KNOWN: 180}
        assert [answer.intent.intent_id for answer in answers] == [new.intent_id for new in news]


async def test_which_of_many_have_moved_is_told_at_once_and_what_is_not_there_is_left_out(url):
    async with scene(url) as at:
        await at.submit("a")
        await at.submit("b")
        await at.submit("failed", TWICE)
        assert await at.store.intake.moved(["b", "nobody", "a", "\0"], LIMIT_S) == []
        term = await at.term()
        for name, outcome in (("a", Outcome(Answer.ACCEPTED)), ("failed", Outcome(Answer.ERROR, error="500"))):
            started = await at.store.attempts.start(term, name, 1.0)
            assert isinstance(started, Started)
            await at.store.attempts.record(term, started, outcome, 1.0)
        assert sorted(await at.store.intake.moved(["b", "failed", "a"], LIMIT_S)) == ["a", "failed"]
        assert await at.store.intake.read("nobody", LIMIT_S) is None
        assert await at.store.intake.history("nobody", LIMIT_S) is None
        assert await at.store.intake.history("b", LIMIT_S) == (await at.store.intake.read("b", LIMIT_S), [])


async def test_tables_are_made_once_however_many_ask_at_the_same_time(empty_url):
    stores = [open_store(empty_url) for _ in range(4)]
    try:
        assert set(await missing(stores[0])) >= {"submission_intents"}
        steps = await asyncio.gather(*(store.init() for store in stores))
        assert sorted(steps) == [[], [], [], ["0001_intents", "0002_owner"]]
        assert await stores[0].init() == []
        assert await missing(stores[3]) == ["submission_manager_leases"]  # fencehold's own to make
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_a_repeat_is_recognised_without_a_contract_and_stores_nothing(url):
    async with scene(url) as at:
        first = await at.submit("a", payload=b"{}")
        repeated, target = at.store.intake.repeated, first.intent.submission_target
        before = at.everything()
        assert await repeated("a", target, b"{}", LIMIT_S) == first.intent
        others = (("a", "other", b"{}"), ("a", target, b"{ }"), ("a", target, None), ("b", target, b"{}"))
        for intent_id, of_target, payload in others:
            assert await repeated(intent_id, of_target, payload, LIMIT_S) is None
        assert at.everything() == before


@pytest.mark.parametrize(
    "table", ["submission_attempts", "submission_intents", "submission_owner", "submission_manager_leases"]
)
async def test_a_table_that_goes_missing_is_named(empty_url, table):
    store = open_store(empty_url)
    try:
        await store.init()
        execute(empty_url, "CREATE TABLE submission_manager_leases (name text)")
        assert await missing(store) == []
        rename = "EXEC sp_rename '{}', 'gone', 'OBJECT'" if "mssql" in empty_url else "ALTER TABLE {} RENAME TO gone"
        execute(empty_url, rename.format(table))
        assert await missing(store) == [table]
    finally:
        await store.close()


async def test_tables_of_an_older_version_are_named(empty_url):
    store = open_store(empty_url)
    try:
        await store.init()
        execute(empty_url, "CREATE TABLE submission_manager_leases (name text)")
        execute(empty_url, "DELETE FROM fencehold_schema")
        assert await missing(store) == ["submission_intents (an old one)"]
    finally:
        await store.close()


async def missing(store: Store) -> list[str]:
    try:
        return await store.intake.missing_tables(LIMIT_S)
    except ConfigurationError:  # there is no file yet
        return ["submission_intents"]


def execute(url: str, statement: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute(statement)
            connection.commit()
    elif url.startswith("mssql"):
        run_on_sqlserver(url, statement, {})
    else:
        with psycopg.connect(url) as connection:
            connection.execute(statement)


async def test_what_is_pending_is_counted_by_target(url):
    async with scene(url) as at:
        assert await at.store.intake.pending_counts(LIMIT_S) == {}
        for n in range(5):
            await at.submit(f"sms{n}")
            await at.submit(f"push{n}", contract(submission_target="push.bulk"))
        term = await at.term()
        start = await at.store.attempts.start(term, "sms0", 5.0)
        assert isinstance(start, Started)
        assert await at.store.intake.pending_counts(LIMIT_S) == {"sms.realtime": 5, "push.bulk": 5}
        await at.store.attempts.record(term, start, Outcome(Answer.ACCEPTED), 5.0)
        assert await at.store.intake.pending_counts(LIMIT_S) == {"sms.realtime": 4, "push.bulk": 5}
