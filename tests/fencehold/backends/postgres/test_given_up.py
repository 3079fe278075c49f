"""A server that is silent is told as silent: never as one that closed the connection, which was our own act."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import fencehold
import fencehold.sync
from fencehold.testing.proxy import FaultProxy, ThreadedFaultProxy
from pgleaderlock import LeaderLock
from tests.fencehold.runtime.outbox.scene import Heard
from tests.pgleaderlock.candidates import address, through
from tests.pgleaderlock.heard import Heard as LockHeard

GIVEN_UP = r"the server did not answer within \d+\.\d s, so the connection was given up"
CONSEQUENCE = ("closed the connection", "terminated abnormally")


@asynccontextmanager
async def behind(url: str, heard: Heard | None = None) -> AsyncIterator[tuple[fencehold.Store, FaultProxy]]:
    async with (
        FaultProxy(*address(url)) as proxy,
        fencehold.connect(through(url, proxy.port), facts=heard) as store,
    ):
        store.outbox()
        await store.init()
        yield store, proxy
        proxy.heal()


def check(text: str) -> None:
    assert not [word for word in CONSEQUENCE if word in text], text


async def test_an_error_says_how_long_the_server_was_silent(postgres_url: str) -> None:
    async with behind(postgres_url) as (store, proxy):
        assert await store.leases.read("x") is None
        store.leases._limit_s = 0.3
        proxy.freeze()
        with pytest.raises(fencehold.Uncertain, match=GIVEN_UP) as caught:
            await store.leases.acquire("x", "me")
        check(str(caught.value))
        assert (caught.value.code, caught.value.__cause__) == ("no_answer", None)


async def test_a_renewal_that_fails_says_it_in_the_log(postgres_url: str) -> None:
    heard = Heard()
    async with behind(postgres_url, heard) as (store, proxy), store.leader("x", lease="3s") as leader:
        assert await leader.wait_for_leadership(30)
        proxy.freeze()
        failed = await heard.once("leader_renew_failed")
        check(failed["sql_error"])
        assert "the connection was given up" in failed["sql_error"]
        proxy.heal()


async def test_a_claim_says_it(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencehold.runtime.outbox.outbox.LIMIT_S", 0.3)
    async with behind(postgres_url) as (store, proxy):
        outbox = store.outbox()
        assert await outbox.claim(1, "me") == []
        proxy.freeze()
        with pytest.raises(fencehold.FenceholdError, match=GIVEN_UP) as caught:
            await outbox.claim(1, "me")
        check(str(caught.value))


async def test_a_lock_says_it_to_on_error(postgres_url: str) -> None:
    async with FaultProxy(*address(postgres_url)) as proxy:
        one = LockHeard(LeaderLock(through(postgres_url, proxy.port), 1, 100, health_interval_s=0.3))
        errors: asyncio.Queue[Exception] = asyncio.Queue()
        one.lock.on_error(errors.put)
        await one.lock.start()
        assert await one.lock.wait_for_leadership(30)
        proxy.freeze()
        said = str(await asyncio.wait_for(errors.get(), 30))
        proxy.heal()
        await one.lock.shutdown()
    check(said)
    assert "the connection was given up" in said


def test_a_commit_without_an_event_loop_says_it(postgres_url: str) -> None:
    with (
        ThreadedFaultProxy(*address(postgres_url)) as proxy,
        fencehold.sync.connect(through(postgres_url, proxy.port)) as store,
    ):
        store.init()
        with store.leader("x", lease="3s") as leader:
            assert leader.wait_for_leadership(30)
            term = leader.term
            assert term is not None
            with pytest.raises(fencehold.Uncertain, match=GIVEN_UP) as caught, term.transaction() as tx:  # noqa: PT012
                tx.execute("SELECT 1")
                proxy.freeze()
        proxy.heal()
    check(str(caught.value))
