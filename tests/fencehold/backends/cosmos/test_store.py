"""The whole library on Cosmos DB: leaders as real processes, items, and what it all costs."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import fencehold
from fencehold.telemetry.prometheus import PrometheusSink
from tests.across_packages.processes import contenders
from tests.servers.cosmos import CosmosServer

LEASE = "3s"


async def prepared(url: str) -> None:
    async with fencehold.connect(url) as store:
        await store.init()


@pytest.mark.fault("kill", "leader")
@pytest.mark.fault("freeze", "leader")
@pytest.mark.fault("shutdown", "leader")
async def test_a_killed_leader_is_followed_a_frozen_one_knows_it_and_a_stopped_one_hands_over(cosmos_url: str) -> None:
    await prepared(cosmos_url)
    with contenders(cosmos_url) as start:
        a = start("A", "--lease", LEASE)
        a.wait_for("leading", epoch=1)
        b = start("B", "--lease", LEASE)
        b.wait_for("started")
        a.kill()
        b.wait_for("leading", epoch=2)
        c = start("C", "--lease", LEASE)
        c.wait_for("started")
        b.freeze()
        c.wait_for("leading", epoch=3)
        b.thaw()
        b.wait_for("lost")
        c.stop()
        b.wait_for("leading", epoch=4)
        b.stop()


async def test_init_may_be_repeated_and_the_outbox_is_passed_over(cosmos_url: str) -> None:
    async with fencehold.connect(cosmos_url) as store:
        assert [step.split()[0] for step in await store.init()] == ["database", "container"]
        assert await store.init() == []
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await store.outbox().add("order.created", {})
        assert caught.value.code == "no_outbox"


async def test_a_term_has_no_transaction_and_says_what_to_do(cosmos_url: str) -> None:
    async with fencehold.connect(cosmos_url) as store:
        await store.init()
        async with store.leader("job", lease=LEASE) as leader:
            assert await leader.wait_for_leadership(20)
            assert leader.term is not None
            with pytest.raises(fencehold.ConfigurationError) as caught:
                async with leader.term.transaction():
                    pytest.fail("a fenced transaction on Cosmos DB")
            assert caught.value.code == "no_transactions"


async def test_items_are_taken_saved_and_given_back(cosmos_url: str) -> None:
    async with fencehold.connect(cosmos_url) as store:
        await store.init()
        items = store.items("negotiation", lease="60s")
        await items.put("7", state="REQUESTED", document={"n": 1})
        for item in await items.next_for_state("REQUESTED"):
            async with item:
                await item.save(state="AGREED", document={"n": 2})
        assert await items.next_for_state("REQUESTED") == []
        [done] = await items.next_for_state("AGREED")
        assert done.document == {"n": 2}


async def test_what_was_charged_is_told_and_counted_by_verb(cosmos_url: str) -> None:
    registry = CollectorRegistry()
    async with fencehold.connect(cosmos_url, facts=PrometheusSink(registry)) as store:
        await store.init()
        await store.leases.acquire("job", "ada", 60)
        value = registry.get_sample_value
        assert value("fencehold_requests_total", {"verb": "acquire"}) == 3.0, "read, clock and create"
        assert value("fencehold_request_units_total", {"verb": "acquire"}) == 3.0, "the stand-in charges 1 for each"


class Rows:
    """Facts as they were told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def fact(self, event: str, **fields: Any) -> None:
        if event == "request_charged":
            self.told.append(fields)


async def test_the_url_may_have_the_key_of_nobody_and_facts_never_show_it(cosmos_server: CosmosServer) -> None:
    facts, key = Rows(), "c2VjcmV0"
    async with fencehold.connect(cosmos_server.url(key=key), facts=facts) as store:
        await store.init()
        await store.leases.acquire("job", "ada", 60)
        assert key not in f"{facts.told}{store!r}"
        assert facts.told
