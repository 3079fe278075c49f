"""A dead server, a lost connection, a password in the URL: an answer within the limit, and never a secret."""

import asyncio
from urllib.parse import urlsplit

import psycopg
import pytest

from fencehold import ConfigurationError, FenceholdError, Unavailable
from fencehold.testing.proxy import FaultProxy
from submission_manager.model.intents import NewIntent
from submission_manager.ports import Submission
from submission_manager.stores.opening import open_store
from tests.submission_manager.stores.scene import LIMIT_S, ONE_SHOT, scene

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "bad",
    [f"postgresql://u:{SECRET}/x@h:5432/d", f"mssql://u:{SECRET}/x@h/d", f"cosmos://:{SECRET}@h/d", f"no {SECRET}"],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(bad):
    with pytest.raises(ConfigurationError) as caught:
        open_store(bad)
    assert SECRET not in str(caught.value)


async def test_a_server_that_is_not_there_is_unavailable_and_the_password_is_not_told():
    store = open_store(f"postgresql://u:{SECRET}@127.0.0.1:1/d")
    with pytest.raises(Unavailable) as caught:
        await store.open()
    assert SECRET not in str(caught.value)
    await store.close()


@pytest.mark.fault("reset", "service")
async def test_a_kept_connection_that_died_is_replaced_without_a_word(tables_url):
    async with scene(tables_url) as at:
        await at.submit("a")
        with psycopg.connect(at.url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert (await at.submit("b")).kind is Submission.CREATED
        assert await at.store.intake.read("a", LIMIT_S) is not None


async def test_a_caller_who_leaves_takes_no_connection_along(tables_url):
    async with scene(tables_url) as at:
        for _ in range(20):
            gone = asyncio.ensure_future(at.store.intake.read("a", LIMIT_S))
            await asyncio.sleep(0.001)
            gone.cancel()
            await asyncio.wait([gone])
        answers = await asyncio.gather(*(at.store.intake.read("a", LIMIT_S) for _ in range(20)))
        assert answers == [None] * 20


@pytest.mark.fault("frozen-tcp", "service")
@pytest.mark.limit(20)
async def test_on_a_network_that_went_dead_every_call_ends_within_its_limit(tables_url):
    parts = urlsplit(tables_url)
    assert parts.port is not None
    async with FaultProxy("127.0.0.1", parts.port) as proxy:
        through = parts._replace(netloc=parts.netloc.replace(str(parts.port), str(proxy.port))).geturl()
        async with scene(through) as at:
            await at.submit("a")
            _, cursor = await at.rebuilt()
            proxy.freeze()
            calls = [
                at.store.intake.submit(NewIntent("b", None, ONE_SHOT), 0.3), at.store.intake.read("a", 0.3),
                at.store.schedule.refresh(cursor, 10, 0.3), at.store.attempts.owed_webhooks(1, 0.3),
            ]  # fmt: skip
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(answer, FenceholdError) for answer in answers), answers
            proxy.heal()
            assert await at.store.intake.read("a", LIMIT_S) is not None
