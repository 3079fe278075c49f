"""The driver's own requests: what it sends to upload and execute a procedure, and what it makes of the answers."""

import uuid
from dataclasses import replace

import pytest

import fencehold
from fencehold.backends.cosmos import wire
from fencehold.backends.cosmos.address import parse
from fencehold.backends.cosmos.items.procedures import ProcedureItems
from fencehold.connect import backend_for
from fencehold.model.errors import ConfigurationError, Unavailable
from fencehold.model.items.rules import HELD_BY_ANOTHER
from fencehold.ports.backend import items_of
from fencehold.ports.items import NewItem
from fencehold.testing.conformance.items.pair import refused, row
from fencehold.testing.conformance.suite import LEASE_S
from fencehold.testing.harness import CALL_LIMIT_S
from tests.fencehold.backends.cosmos.charged import Charged
from tests.fencehold.backends.cosmos.items.procedures.bridge import Bridge
from tests.fencehold.backends.cosmos.items.procedures.http_front import http_front

pytestmark = pytest.mark.needs("node")
KEY = "dGVzdA=="
NAME = "caf\u00e9 \u2028 a/b?c#d"  # in an address, a header or a script, each of these could go wrong


def url_of(address: str, options: str = "&items=procedures") -> str:
    return f"cosmos://:{KEY}@{address}/app?tls=off{options}"


async def test_a_store_uploads_the_procedures_and_works_by_them(bridge: Bridge) -> None:
    async with http_front(bridge, uuid.uuid4().hex) as (address, asked):
        charged = Charged()
        backend = backend_for(url_of(address), facts=charged)()
        items = items_of(backend, NAME)
        try:
            assert len(await items.schema.init(CALL_LIMIT_S)) == 2
            row(await items.port.put(NewItem(NAME, "NEW", '{"n":9007199254740993}', NAME), CALL_LIMIT_S))
            [held] = await items.leases.next_for_state("NEW", 20, NAME, LEASE_S, CALL_LIMIT_S)
            assert (held.id, held.holder_id, held.document_json) == (NAME, NAME, '{"n":9007199254740993}')
            no = refused(await items.leases.acquire(NAME, "bob", LEASE_S, CALL_LIMIT_S))
            assert no.reason == HELD_BY_ANOTHER
            assert asked == ["create_procedure"] * 2 + ["execute"] * 3
            assert charged.units["next_for_state"] == [7.25]
        finally:
            await items.close()


async def test_a_program_leases_saves_and_gives_back_by_them(bridge: Bridge) -> None:
    async with (
        http_front(bridge, uuid.uuid4().hex) as (address, asked),
        fencehold.connect(url_of(address)) as store,
    ):
        items = store.items("negotiation", lease="60s")
        assert [step.split("-")[1] for step in await store.init()] == ["lease", "nextForState"]
        for number in range(3):
            await items.put(str(number), state="REQUESTED", document={"n": number})
        asked.clear()
        taken = await items.next_for_state("REQUESTED", limit=20)
        assert asked == ["execute"]
        for item in taken:
            async with item:
                await item.save(state="AGREED")
        with pytest.raises(fencehold.LeaseLost):
            await taken[0].save(state="REQUESTED")
        assert [(item.id, item.state) for item in await items.next_for_state("AGREED")] == [
            (str(number), "AGREED") for number in range(3)
        ]


async def test_a_procedure_that_is_not_there_and_one_that_throws(bridge: Bridge) -> None:
    space = uuid.uuid4().hex
    async with http_front(bridge, space) as (address, asked):
        items = items_of(backend_for(url_of(address))(), "deal")
        try:
            with pytest.raises(ConfigurationError, match="no stored procedure"):
                await items.leases.acquire("1", "ada", LEASE_S, CALL_LIMIT_S)
            await items.schema.init(CALL_LIMIT_S)
            bridge.ask(space, "accept", operations=0)
            asked.clear()
            with pytest.raises(Unavailable, match="not accepted"):
                await items.leases.acquire("1", "ada", LEASE_S, CALL_LIMIT_S)
            assert asked == ["execute"], "nothing is gained by asking again at once"
        finally:
            await items.close()


async def test_with_a_token_init_uploads_nothing_and_says_which_procedure_is_missing(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The front takes no TLS, so the key goes in the token's place: what is asked for is the same."""
    monkeypatch.setattr(wire, "token_credential", lambda: None)
    async with http_front(bridge, uuid.uuid4().hex) as (address, asked):
        by_key = parse(url_of(address))
        mine, admins = (
            ProcedureItems(wire.Wire(one), "deal") for one in (replace(by_key, credential="default"), by_key)
        )
        try:
            with pytest.raises(ConfigurationError, match="no stored procedure fencehold-lease") as caught:
                await mine.schema.init(CALL_LIMIT_S)
            assert caught.value.code == "schema_missing"
            await admins.schema.init(CALL_LIMIT_S)
            asked.clear()
            assert await mine.schema.init(CALL_LIMIT_S) == []
            assert asked == ["execute"] * 2, "nothing was uploaded"
        finally:
            await mine.close()
            await admins.close()


def test_the_way_to_work_is_chosen_in_the_url_and_a_wrong_word_is_refused() -> None:
    kinds = {
        options: type(items_of(backend_for(url_of("h", options))(), "deal").port) for options in ("", "&items=etag")
    }
    assert {kind.__name__ for kind in kinds.values()} == {"CosmosItemPort"}
    with pytest.raises(ConfigurationError, match="neither etag nor procedures"):
        backend_for(url_of("h", "&items=both"))
