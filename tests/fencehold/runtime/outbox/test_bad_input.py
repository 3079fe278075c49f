"""Bad input: a coded error that says what is wrong, and nothing written."""

import datetime as dt
import uuid
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio as sa_async
import sqlalchemy.orm

import fencehold
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import code_of, dialect, own_connection, row, rows
from tests.fencehold.runtime.outbox.test_adding import sa_url

NAIVE = dt.datetime(2030, 1, 1)  # noqa: DTZ001 - that is the point


class Unserialisable:
    pass


endless: list[Any] = []
endless.append(endless)


BAD_EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("bad_payload", {"payload": Unserialisable()}),
    ("bad_payload", {"payload": {1, 2}}),
    ("bad_payload", {"payload": float("nan")}),
    ("bad_payload", {"payload": {"x": float("inf")}}),
    ("bad_payload", {"payload": b"bytes"}),
    ("bad_payload", {"payload": {7: "seven"}}),
    ("bad_payload", {"payload": [{"inner": ({"deep": 1, None: 2},)}]}),
    ("bad_payload", {"payload": 1, "metadata": {True: "yes"}}),
    ("bad_payload", {"payload": endless}),
    ("bad_payload", {"payload": "nul \0"}),
    ("bad_payload", {"payload": {"nul \0": 1}}),
    ("bad_payload", {"payload": "nul behind a backslash \\\0"}),
    ("bad_payload", {"payload": r"behind the six characters \u0000" + "\\\\\0"}),
    ("bad_payload", {"payload": "half \ud800"}),
    ("bad_payload", {"payload": {"half \udfff": 1}}),
    ("payload_too_large", {"payload": "x" * 1000}),
    ("payload_too_large", {"payload": "☃" * 400}),
    ("unknown_event_type", {"event_type": "unheard.of"}),
    ("bad_event", {"event_type": ""}),
    ("bad_event", {"event_type": None}),
    ("bad_event", {"event_type": "x" * 129}),
    ("bad_event", {"event_type": "line\nbreak"}),
    ("bad_event", {"priority": 32_768}),
    ("bad_event", {"priority": -32_768}),
    ("bad_event", {"priority": 1.5}),
    ("bad_event", {"priority": True}),
    ("bad_event", {"priority": "high"}),
    ("bad_event", {"not_before": NAIVE}),
    ("bad_event", {"not_before": dt.datetime.max.replace(tzinfo=dt.UTC)}),
    ("bad_event", {"not_before": dt.datetime.min.replace(tzinfo=dt.UTC)}),
    ("bad_duration", {"not_before": -5}),
    ("bad_duration", {"not_before": "soon"}),
    ("bad_event", {"tracking_id": "not a uuid"}),
    ("bad_event", {"tracking_id": 7}),
    ("bad_event", {"aggregate_id": ""}),
    ("bad_event", {"aggregate_id": 7}),
    ("bad_event", {"aggregate_id": "x" * 257}),
    ("bad_event", {"aggregate_type": "\0"}),
    ("bad_payload", {"metadata": {"x": Unserialisable()}}),
    ("bad_event", {"metadata": "text"}),
    ("bad_event", {"metadata": [1]}),
]


async def test_a_bad_event_is_refused_and_nothing_is_written(url: str, opened: Opened) -> None:
    async with opened(url, event_types=["known"], payload_bytes_max=1000) as (outbox, _):
        for code, wrong in BAD_EVENTS:
            event = {"event_type": "known", "payload": 1, **wrong}
            for add in (outbox.add(**event), outbox.add_many([("known", 1), event])):
                with pytest.raises(fencehold.ConfigurationError) as error:
                    await add
                assert code_of(error) == code, wrong
        assert await rows(url) == []


NO_EVENTS: list[Any] = [
    "ab", "a", 7, None, ("known",), ("known", 1, 2), {"payload": 1}, {"event_type": "known"},
    {"event_type": "known", "payload": 1, "bogus": 2},
]  # fmt: skip


async def test_what_is_no_event_is_refused(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        for bad in NO_EVENTS:
            with pytest.raises(fencehold.ConfigurationError) as error:
                await outbox.add_many([("known", 1), bad])
            assert code_of(error) == "bad_event", bad
        assert await rows(url) == []


@pytest.mark.parametrize("count", [1000, 6000])
async def test_a_bad_event_far_down_in_a_long_list_leaves_nothing_written(url: str, opened: Opened, count: int) -> None:
    async with opened(url) as (outbox, _):
        with pytest.raises(fencehold.ConfigurationError) as error:
            await outbox.add_many([*(("a", n) for n in range(count - 1)), ("a", {1, 2})])  # type: ignore[list-item]
        assert code_of(error) == "bad_payload"
        assert await rows(url) == []
        await outbox.add("a", 1)
        assert len(await rows(url)) == 1


@pytest.mark.parametrize("how", ["add", "add_many", "tx"])
async def test_the_six_characters_of_an_escaped_nul_are_a_text_like_any_other(
    url: str, opened: Opened, how: str
) -> None:
    text = r"\u0000"
    assert len(text) == 6
    event = ("known", {text: [text, "\\" + text]})
    async with opened(url) as (outbox, _):
        if how == "add":
            await outbox.add(*event, metadata={text: text})
        elif how == "add_many":
            await outbox.add_many([event] * 3)
        else:
            with closing(own_connection(url)) as mine:
                await outbox.add_many([event], tx=mine)
                mine.commit()
        claims = await outbox.claim(10, "ada")
        assert [claim.payload for claim in claims] == [event[1]] * len(claims)
        assert claims


async def test_what_is_no_list_of_events_is_refused(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        wrongs: list[Any] = [None, 7, "order.created", {"event_type": "a", "payload": 1}]
        for wrong in wrongs:
            with pytest.raises(fencehold.ConfigurationError) as error:
                await outbox.add_many(wrong)
            assert code_of(error) == "bad_event", wrong


async def test_a_payload_of_exactly_the_limit_is_taken(url: str, opened: Opened) -> None:
    async with opened(url, payload_bytes_max=1000) as (outbox, _):
        await outbox.add("a", "x" * 998)
        await outbox.add("a", "☃" * 332)
        assert len(await rows(url)) == 2


async def test_what_is_no_transaction_is_refused(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        wrongs: list[Any] = [object(), "postgresql://", 7, sqlalchemy.text("x")]
        for wrong in wrongs:
            for attempt in (
                outbox.add("a", 1, tx=wrong),
                outbox.add_many([("a", 1)], tx=wrong),
                outbox.first_time(uuid.uuid4(), "me", tx=wrong),
            ):
                with pytest.raises(fencehold.ConfigurationError) as error:
                    await attempt
                assert code_of(error) == "bad_connection"
        assert await rows(url) == []


async def test_without_an_event_loop_an_async_connection_is_refused(schema_url: str, opened: Opened) -> None:
    async with opened(schema_url) as (outbox, _), await psycopg.AsyncConnection.connect(schema_url) as tx:
        with pytest.raises(fencehold.ConfigurationError) as error:
            outbox.add_now([("a", 1)], tx, await outbox.outbox_id())  # type: ignore[arg-type]
        assert code_of(error) == "bad_connection"
        with pytest.raises(fencehold.ConfigurationError) as error:
            outbox.first_time_now(uuid.uuid4(), "me", tx, await outbox.outbox_id())  # type: ignore[arg-type]
        assert code_of(error) == "bad_connection"
        assert await rows(schema_url) == []


async def test_a_connection_in_autocommit_is_refused(url: str, opened: Opened) -> None:
    connection = own_connection(url, autocommit=True)
    async with opened(url) as (outbox, _):
        with pytest.raises(fencehold.ConfigurationError) as error:
            await outbox.add("a", 1, tx=connection)
        assert code_of(error) == "add_outside_transaction"
        assert await rows(url) == []
        connection.execute("BEGIN TRANSACTION")
        event = await outbox.add("a", 1, tx=connection)
        connection.execute("COMMIT")
        assert (await row(url, event))["status"] == "PENDING"
    connection.close()


async def test_a_sqlalchemy_connection_in_autocommit_is_refused(url: str, opened: Opened) -> None:
    engine = sqlalchemy.create_engine(sa_url(url), isolation_level="AUTOCOMMIT")
    async with opened(url) as (outbox, _):
        with engine.connect() as connection, pytest.raises(fencehold.ConfigurationError) as error:
            await outbox.add("a", 1, tx=connection)
        assert code_of(error) == "add_outside_transaction"
        with sqlalchemy.orm.Session(engine) as session, pytest.raises(fencehold.ConfigurationError) as error:
            await outbox.first_time(uuid.uuid4(), "me", tx=session)
        assert code_of(error) == "add_outside_transaction"
        assert await rows(url) == []
    engine.dispose()


async def test_an_async_sqlalchemy_session_in_autocommit_is_refused(pg_or_sqlite_url: str, opened: Opened) -> None:
    url = pg_or_sqlite_url
    engine = sa_async.create_async_engine(sa_url(url, is_async=True), isolation_level="AUTOCOMMIT")
    async with opened(url) as (outbox, _):
        async with engine.connect() as connection, sa_async.AsyncSession(engine) as session:
            for tx in (connection, session):
                with pytest.raises(fencehold.ConfigurationError) as error:
                    await outbox.add("a", 1, tx=tx)
                assert code_of(error) == "add_outside_transaction"
        assert await rows(url) == []
    await engine.dispose()


async def test_a_refusal_of_the_database_has_a_code_through_sqlalchemy_too(url: str) -> None:
    engine = sqlalchemy.create_engine(sa_url(url))
    async with fencehold.connect(url) as store:
        outbox = store.outbox()
        await store.init()
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("DROP TABLE outbox"))
            with pytest.raises(fencehold.ConfigurationError) as error:
                await outbox.add("a", 1, tx=connection)
            assert code_of(error) in ("schema_missing", "wrong_store"), "on this connection there is no outbox"
    engine.dispose()


async def test_a_closed_connection_is_refused_with_a_code(url: str, opened: Opened) -> None:
    connection = own_connection(url)
    connection.close()
    async with opened(url) as (outbox, _):
        with pytest.raises(fencehold.FenceholdError):
            await outbox.add("a", 1, tx=connection)
        assert await rows(url) == []


async def test_a_connection_to_another_database_is_refused(url: str, opened: Opened, tmp_path: Any) -> None:
    others = {
        "sqlite": f"sqlite:///{tmp_path / 'other.db'}",
        "postgresql": url.partition("?")[0],
        "mssql": urlsplit(url)._replace(path="/master").geturl(),
    }
    connection = own_connection(others[dialect(url)])
    async with opened(url) as (outbox, _):
        with pytest.raises(fencehold.ConfigurationError):
            await outbox.add("a", 1, tx=connection)
        connection.close()
        assert await rows(url) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"lease": "50ms"}, {"lease": 0}, {"lease": "never"}, {"heartbeat_every": "10s"}, {"reap_every": "30s"},
        {"max_retries": 0}, {"max_retries": 32_001}, {"max_retries": True}, {"retry_base": "2m", "retry_cap": "1m"},
        {"payload_bytes_max": 0}, {"event_types": "order.created"},
    ],
    ids=repr,
)  # fmt: skip
async def test_outbox_settings_that_cannot_work_are_refused_before_anything_is_sent(
    file_url: str, settings: dict[str, Any]
) -> None:
    async with fencehold.connect(file_url) as store:
        with pytest.raises(fencehold.ConfigurationError) as error:
            store.outbox(**settings)
        assert code_of(error) == "bad_settings"


async def test_a_batch_larger_than_what_a_worker_may_have_in_hand_is_refused(file_url: str, opened: Opened) -> None:
    async with opened(file_url) as (outbox, _):
        with pytest.raises(fencehold.ConfigurationError, match="batch_size") as error:
            outbox.worker(print, batch_size=11)
        assert code_of(error) == "bad_settings"
        assert outbox.worker(print, batch_size=11, concurrency=11).settings.batch_size == 11


@pytest.mark.parametrize("per_minute", [0, -1, float("inf"), float("nan")])
async def test_a_redrive_at_no_rate_or_at_any_rate_is_refused(file_url: str, opened: Opened, per_minute: float) -> None:
    async with opened(file_url) as (outbox, _):
        with pytest.raises(fencehold.ConfigurationError) as error:
            await outbox.redrive("a", "mended", per_minute=per_minute)
        assert code_of(error) == "bad_settings"


@pytest.mark.parametrize("name", ["", "Outbox", "a b", "x" * 49, "drop table;", None, 'a"b'])
async def test_what_is_no_table_name_is_refused(file_url: str, name: Any) -> None:
    async with fencehold.connect(file_url) as store:
        with pytest.raises(fencehold.ConfigurationError) as error:
            store.outbox(name)
        assert code_of(error) == "bad_name"


async def test_ids_that_are_none_are_refused_with_a_code(url: str, opened: Opened) -> None:
    unused: Any = None
    async with opened(url) as (outbox, _):
        with pytest.raises(fencehold.ConfigurationError):
            await outbox.retry(["no uuid"])
        with pytest.raises(fencehold.ConfigurationError):
            await outbox.first_time("no uuid", "me", tx=unused)
        with pytest.raises(fencehold.ConfigurationError, match="consumer_id"):
            await outbox.first_time(uuid.uuid4(), "", tx=unused)
        with pytest.raises(fencehold.ConfigurationError) as error:
            await outbox.complete(["no claim"])  # type: ignore[list-item]
        assert code_of(error) == "bad_claim"
        with pytest.raises(fencehold.ConfigurationError):
            await outbox.claim(0, "w")
        with pytest.raises(fencehold.ConfigurationError):
            await outbox.claim(1, "")


async def test_without_tables_every_verb_says_so(url: str) -> None:
    async with fencehold.connect(url) as store:
        outbox = store.outbox()
        for attempt in (outbox.add("a", 1), outbox.claim(1, "w"), outbox.reap(), outbox.stats(), outbox.find()):
            with pytest.raises(fencehold.ConfigurationError) as error:
                await attempt
            assert code_of(error) == "schema_missing"

        async def handle(event: fencehold.Claim) -> None:
            return None

        with pytest.raises(fencehold.ConfigurationError) as error:
            await outbox.worker(handle).run()
        assert code_of(error) == "schema_missing"
