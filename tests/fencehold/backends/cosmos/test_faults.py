"""What the server says when it cannot: asked again within the limit, Unavailable or Uncertain; never a false yes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fencehold.backends.cosmos.wire import refuse_many_writers
from fencehold.model.election.rules import Ask, Lease
from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, Uncertain
from fencehold.testing.proxy import Fault, FaultProxy
from tests.fencehold.backends.cosmos.charged import Charged
from tests.fencehold.backends.cosmos.conftest import LIMIT_S
from tests.servers.cosmos import CosmosServer

Opened = Callable[..., Any]
ASK = Ask("job", "ada", 60.0, "n")


@pytest.mark.parametrize("status", [429, 449])
async def test_a_request_put_off_is_asked_again_when_the_server_said(
    opened: Opened, cosmos_server: CosmosServer, status: int
) -> None:
    charged = Charged()
    async with opened(facts=charged) as backend:
        cosmos_server.fail_next(3, status, retry_ms=20)
        assert isinstance(await backend.leases.acquire(ASK, LIMIT_S), Lease)
        assert len(charged.units["acquire"]) == 3 + 3, "read, clock and create; and three that were put off"


@pytest.mark.parametrize("status", [429, 449])
async def test_put_off_for_longer_than_the_limit_it_is_busy_and_nothing_was_done(
    opened: Opened, cosmos_server: CosmosServer, status: int
) -> None:
    async with opened() as backend:
        cosmos_server.fail_next(1000, status, retry_ms=60_000, method="POST")
        with pytest.raises(Unavailable) as caught:
            await backend.leases.acquire(ASK, 2.0)
        assert caught.value.code == "busy"
        cosmos_server.behave()
        assert await backend.leases.read(["job"], LIMIT_S) == {}


async def test_put_off_again_and_again_it_ends_with_the_limit(opened: Opened, cosmos_server: CosmosServer) -> None:
    async with opened() as backend:
        cosmos_server.fail_next(10_000, 429, retry_ms=30)
        with pytest.raises(Unavailable):
            await backend.leases.acquire(ASK, 0.5)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_not_let_in_is_said_so(opened: Opened, cosmos_server: CosmosServer, status: int) -> None:
    async with opened() as backend:
        cosmos_server.fail_next(1, status)
        with pytest.raises(ConfigurationError) as caught:
            await backend.leases.acquire(ASK, LIMIT_S)
        assert caught.value.code == "login_refused"


@pytest.mark.parametrize("status", [408, 500, 503])
async def test_a_write_the_server_gave_up_is_uncertain_and_a_read_is_not(
    opened: Opened, cosmos_server: CosmosServer, status: int
) -> None:
    async with opened() as backend:
        key = (await backend.leases.acquire(ASK, LIMIT_S)).key(60.0)
        cosmos_server.fail_next(1, status, method="PUT")
        with pytest.raises(Uncertain):
            await backend.leases.renew([key], LIMIT_S)
        cosmos_server.fail_next(1, status, method="GET")
        with pytest.raises(Unavailable):
            await backend.leases.read(["job"], LIMIT_S)
        assert isinstance((await backend.leases.renew([key], LIMIT_S))[0], Lease)


@pytest.mark.parametrize("status", [503, 403])
async def test_in_a_batch_the_one_without_an_answer_is_busy_and_the_others_are_kept(
    opened: Opened, cosmos_server: CosmosServer, status: int
) -> None:
    async with opened() as backend:
        keys = [(await backend.leases.acquire(Ask(name, "ada", 60.0, "n"), LIMIT_S)).key(60.0) for name in "abc"]
        cosmos_server.fail_next(1, status, method="PUT")
        answers = await backend.leases.renew(keys, LIMIT_S)
        assert sorted(type(answer).__name__ for answer in answers) == ["Busy", "Lease", "Lease"]


async def test_before_init_every_verb_says_what_is_missing(opened: Opened) -> None:
    async with opened(init=False) as backend:
        for call in (backend.leases.acquire(ASK, LIMIT_S), backend.leases.list("", LIMIT_S)):
            with pytest.raises(ConfigurationError) as caught:
                await call
            assert caught.value.code == "schema_missing"


async def test_two_at_once_may_init_and_a_third_finds_it_done(opened: Opened) -> None:
    async with opened(init=False) as one, opened(init=False) as two:
        steps = await asyncio.gather(one.schema.init(LIMIT_S), two.schema.init(LIMIT_S))
        assert sorted(name.split()[0] for made in steps for name in made) == ["container", "database"]
        assert await two.schema.init(LIMIT_S) == []
        assert "--partition-key-path /pk" in one.schema.script()


async def test_nobody_at_the_address_is_unreachable(opened: Opened, cosmos_server: CosmosServer) -> None:
    with pytest.raises(Unavailable) as caught:
        async with opened(url=cosmos_server.url(port=9)):
            pytest.fail("opened")
    assert caught.value.code in ("unreachable", "timeout")


@pytest.mark.fault("reset", "items")
async def test_a_connection_cut_after_sending_is_not_taken_for_one_that_never_was(
    opened: Opened, cosmos_server: CosmosServer, cosmos_url: str
) -> None:
    """The driver files both under requests that were never sent; a lease may have been granted all the same."""
    async with FaultProxy("127.0.0.1", cosmos_server.port) as proxy, opened() as direct:
        through = cosmos_url.replace(f":{cosmos_server.port}/", f":{proxy.port}/")
        async with opened(url=through) as backend:
            await backend.leases.acquire(Ask("warm", "ada", 60.0, "n"), LIMIT_S)
            trip = proxy.when_seen(b"a name to be lost", Fault.RESET_ONE)
            with pytest.raises(Uncertain):
                await backend.leases.acquire(Ask("a name to be lost", "ada", 60.0, "n"), LIMIT_S)
            await trip.wait()
        assert "a name to be lost" in await direct.leases.read(["a name to be lost"], LIMIT_S)


async def test_the_key_is_in_no_error(opened: Opened, cosmos_server: CosmosServer) -> None:
    async with opened() as backend:
        for status in (401, 429, 500):
            cosmos_server.fail_next(1000, status, retry_ms=60_000)
            with pytest.raises(FenceholdError) as caught:
                await backend.leases.acquire(ASK, 0.5)
            assert backend._address.key not in repr(caught.value) + str(caught.value.__dict__)


async def test_an_account_with_several_write_regions_is_refused(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as backend:
        client = await backend._wire.client()
        await refuse_many_writers(client)
        account = await client.client_connection.GetDatabaseAccount()
        account._WritableLocations = [{"name": "North"}, {"name": "South"}]

        async def told(**_: object) -> object:
            return account

        monkeypatch.setattr(client.client_connection, "GetDatabaseAccount", told)
        with pytest.raises(ConfigurationError) as caught:
            await refuse_many_writers(client)
        assert caught.value.code == "many_write_regions"


async def test_a_certificate_nobody_signed_is_refused_unless_it_was_asked_for(opened: Opened) -> None:
    server = CosmosServer(tls=True)
    try:
        server.start()
        with pytest.raises(Unavailable) as caught:
            async with opened(url=server.url()):
                pytest.fail("opened")
        assert caught.value.code == "unreachable"
        async with opened(url=server.url(verify="off")) as backend:
            assert isinstance(await backend.leases.acquire(ASK, LIMIT_S), Lease)
    finally:
        server.close()
