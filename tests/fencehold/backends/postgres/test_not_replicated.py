"""durable="replicated": what was answered as not replicated stays so until it is, and is not laid at another's door."""

import asyncio
from typing import Any

import pytest

import fencehold
from fencehold.model.election.rules import Lease
from fencehold.model.errors import Unavailable, Uncertain
from fencehold.own_tables import own_tables
from submission_manager.answers import Answers
from submission_manager.model.intents import NewIntent
from submission_manager.ports import Submission
from submission_manager.stores.opening import PACKAGE, TABLE, Store, open_store
from tests.fencehold.backends.postgres.test_replicated import LIMIT_S, Facts, opened, request, until_waiting
from tests.servers.pair import Pair, ask, until
from tests.submission_manager.stores.scene import contract

NEW = NewIntent("i1", b"{}", contract())


async def cut_short(pair: Pair, asked: Any) -> Uncertain:
    """The error of a call whose wait for the standby is cancelled; the standby hangs afterwards."""
    pair.standby.freeze()
    under_way = asyncio.ensure_future(asked)
    await asyncio.to_thread(pair.cut_waits)
    with pytest.raises(Uncertain) as caught:
        await under_way
    return caught.value


# --- leases and items ---


@pytest.mark.parametrize("verb", ["renew", "release"])
async def test_a_renewal_or_a_release_whose_wait_was_cancelled_is_uncertain(pair: Pair, url: str, verb: str) -> None:
    backend = await opened(url)
    lease = await backend.leases.acquire(request(), LIMIT_S)
    assert isinstance(lease, Lease)
    error = await cut_short(pair, getattr(backend.leases, verb)([lease.key(600.0)], LIMIT_S))
    assert error.code == "not_replicated"
    pair.standby.thaw()
    await backend.close()


@pytest.mark.parametrize("verb", ["acquire", "next_for_state"])
async def test_a_grant_of_an_item_whose_wait_was_cancelled_is_uncertain(pair: Pair, url: str, verb: str) -> None:
    """Whatever the store was opened with: a token that was answered must not come twice."""
    async with fencehold.connect(url) as store:
        items = store.items("deal", lease="600s")
        await store.init()
        await items.put("7", state="NEW", document={})
        error = await cut_short(pair, items.acquire("7") if verb == "acquire" else items.next_for_state("NEW"))
        pair.standby.thaw()
    assert error.code == "not_replicated"


# --- the outbox ---


async def test_an_add_whose_wait_was_cancelled_is_uncertain_and_not_repeated_into_a_yes(pair: Pair, url: str) -> None:
    async with fencehold.connect(url, durable="replicated") as store:
        outbox = store.outbox()
        await store.init()
        await outbox.add("a", 1)
        error = await cut_short(pair, outbox.add("a", 2))
        pair.standby.thaw()
    assert error.code == "not_replicated"
    assert ask(url, "SELECT count(*) FROM outbox") == [(2,)]


async def test_an_add_whose_connection_ended_while_it_waited_is_not_stored_before_the_standby_has_it(
    pair: Pair, url: str
) -> None:
    async with fencehold.connect(url, durable="replicated") as store:
        outbox = store.outbox()
        await store.init()
        await outbox.add("a", 1)
        pair.standby.freeze()
        asked = asyncio.ensure_future(outbox.add("a", 2))
        await asyncio.to_thread(until_waiting, pair)
        [(first,)] = pair.waiting()
        ask(url, f"SELECT pg_terminate_backend({first}, 5000)")
        await asyncio.to_thread(until, lambda: asked.done() or pair.waiting())
        assert not asked.done()
        pair.standby.thaw()
        await asked
    assert ask(url, "SELECT count(*) FROM outbox") == [(2,)]


# --- a connection on which a wait was cut short ---


async def test_a_wait_of_a_renewal_that_was_cancelled_is_not_laid_at_the_next_grants_door(pair: Pair, url: str) -> None:
    """Without durable= a renewal is answered all the same."""
    ask(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = on")
    backend = await opened(url, None)
    lease = await backend.leases.acquire(request(), LIMIT_S)
    assert isinstance(lease, Lease)
    pair.standby.freeze()
    renewed = asyncio.ensure_future(backend.leases.renew([lease.key(600.0)], LIMIT_S))
    await asyncio.to_thread(pair.cut_waits)
    assert isinstance((await renewed)[0], Lease)
    pair.standby.thaw()
    assert isinstance(await backend.leases.acquire(request("other"), LIMIT_S), Lease)
    await backend.close()


# --- the service ---


async def service(url: str) -> Store:
    store = open_store(url, "replicated")
    await store.init()
    await store.open()
    return store


async def test_without_a_standby_no_intent_is_taken_until_there_is_one_again(pair: Pair, url: str) -> None:
    store = await service(url)
    pair.wait_for("")
    with pytest.raises(Uncertain, match="waits for no standby any more"):  # the first to learn of it
        await store.intake.submit(NEW, LIMIT_S)
    with pytest.raises(Unavailable) as caught:
        await store.intake.submit(NewIntent("i2", b"{}", contract()), LIMIT_S)
    assert caught.value.code == "no_standby"
    assert ask(url, "SELECT intent_id FROM submission_intents") == [("i1",)]
    pair.wait_for("*")
    assert (await store.intake.submit(NEW, LIMIT_S)).kind is Submission.KNOWN
    await store.close()


async def test_an_intent_is_taken_without_a_standby_with_a_warning_where_that_was_chosen(pair: Pair, url: str) -> None:
    facts = Facts()
    tables = own_tables(url, PACKAGE, TABLE, durable="replicated", without_standby="warn", facts=facts)
    store = Store(tables, Answers())
    await store.init()
    await store.open()
    pair.wait_for("")
    for _ in range(2):
        await store.intake.submit(NEW, LIMIT_S)
    assert facts.told == ["store_not_replicated"]
    await store.close()


@pytest.mark.parametrize("way", ["submit", "repeated"])
async def test_a_repeat_of_an_intent_is_not_known_before_the_standby_has_it(pair: Pair, url: str, way: str) -> None:
    store = await service(url)
    assert (await cut_short(pair, store.intake.submit(NEW, LIMIT_S))).code == "not_replicated"
    again: dict[str, Any] = {
        "submit": lambda: store.intake.submit(NEW, LIMIT_S),
        "repeated": lambda: store.intake.repeated("i1", contract().submission_target, b"{}", LIMIT_S),
    }
    asked = asyncio.ensure_future(again[way]())
    await asyncio.to_thread(until_waiting, pair)
    assert not asked.done()
    pair.standby.thaw()
    assert await asked
    await store.close()
