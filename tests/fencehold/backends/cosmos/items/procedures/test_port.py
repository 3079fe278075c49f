"""What the procedures path promises beyond the rules: requests, buckets, collisions, calls that end half-way."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError

from fencehold.backends.cosmos.items.procedures import procedure
from fencehold.model.errors import ConfigurationError, Unavailable, Uncertain
from fencehold.model.items.rules import HELD_BY_ANOTHER, LAPSED, ItemKey
from fencehold.ports.items import ItemRow, ItemStore, NewItem
from fencehold.testing.conformance.items.pair import refused, row
from fencehold.testing.conformance.suite import LEASE_S, START
from fencehold.testing.harness import CALL_LIMIT_S, ITEM_KIND
from tests.fencehold.backends.cosmos.charged import Charged
from tests.fencehold.backends.cosmos.items.procedures.bridge import Bridge
from tests.fencehold.testing.conformance.cosmos_procedures_harness import ProcedureHarness

pytestmark = pytest.mark.needs("node")
SHORT_S = 0.5


@pytest.fixture
def harness(bridge: Bridge, request: pytest.FixtureRequest) -> Iterator[ProcedureHarness]:
    made = ProcedureHarness(bridge, buckets=getattr(request, "param", 1))
    yield made
    asyncio.run(made.close())


async def opened(harness: ProcedureHarness) -> ItemStore:
    await harness.prepare()
    await harness.set_clock(START)
    return await harness.items()


async def filled(harness: ProcedureHarness, count: int) -> ItemStore:
    items = await opened(harness)
    for number in range(count):
        await harness.set_clock(START + number * harness.traits.tick)
        row(await items.port.put(NewItem(f"item {number}", "NEW", str(number), "whoever"), CALL_LIMIT_S))
    harness.container.executed.clear()
    return items


async def next_ids(items: ItemStore, limit: int = 20, holder: str = "ada", limit_s: float = CALL_LIMIT_S) -> list[str]:
    return [one.id for one in await items.leases.next_for_state("NEW", limit, holder, LEASE_S, limit_s)]


def failing(harness: ProcedureHarness, *calls: int, status: int, sub_status: int = 0, after: bool = False) -> None:
    """The procedure calls of these numbers, counted from 1, fail; `after`: when they have been executed."""
    ask, count = harness.container.ask, 0

    async def told(verb: str, hook: Any, **request: Any) -> Any:
        nonlocal count
        count += verb == "execute"
        is_hit = verb == "execute" and count in calls
        if is_hit and not after:
            raise CosmosHttpResponseError(status, "told to fail", sub_status=sub_status)
        answer = await ask(verb, hook, **request)
        if is_hit:
            raise CosmosHttpResponseError(status, "told to fail", sub_status=sub_status)
        return answer

    harness.container.ask = told  # type: ignore[method-assign]


class TestRequests:
    async def test_every_verb_is_one_request(self, harness: ProcedureHarness) -> None:
        items = await filled(harness, 21)
        first, *rest = await items.leases.next_for_state("NEW", 20, "ada", LEASE_S, CALL_LIMIT_S)
        assert len(rest) == 19
        assert len(await items.port.get([one.id for one in rest], CALL_LIMIT_S)) == 19
        keys = [one.key for one in rest]
        assert len(await items.leases.renew(keys, LEASE_S, CALL_LIMIT_S)) == 19
        assert await items.leases.break_leases(keys, CALL_LIMIT_S) == {}
        row(await items.port.save(first.key, "SENT", None, CALL_LIMIT_S))
        assert await items.port.delete(first.key, CALL_LIMIT_S) is None
        row(await items.leases.acquire("item 20", "ada", LEASE_S, CALL_LIMIT_S))
        assert harness.container.executed == ["execute"] * 7

    async def test_requests_and_units_are_reported_by_verb(self, harness: ProcedureHarness) -> None:
        await filled(harness, 3)
        charged = Charged()
        await next_ids(harness.made(by_procedure=True, facts=charged).items(ITEM_KIND))
        assert charged.units["next_for_state"] == [1.0]

    async def test_a_long_batch_is_asked_for_in_parts_and_answered_as_one(self, harness: ProcedureHarness) -> None:
        items = await filled(harness, 130)
        taken = await items.leases.next_for_state("NEW", 500, "ada", LEASE_S, CALL_LIMIT_S)
        assert [one.document_json for one in taken] == [str(n) for n in range(130)]
        assert len(await items.leases.renew([one.key for one in taken], LEASE_S, CALL_LIMIT_S)) == 130
        assert harness.container.executed == ["execute"] * 4


class TestUpload:
    async def test_init_uploads_what_is_not_there_and_may_be_repeated(self, harness: ProcedureHarness) -> None:
        await harness.prepare()
        one, two = await harness.items(init=False), await harness.items(init=False)
        told = await asyncio.gather(one.schema.init(CALL_LIMIT_S), two.schema.init(CALL_LIMIT_S))
        ids = [f"procedure {procedure(script).id}" for script in ("lease", "nextForState")]
        assert sorted(step for steps in told for step in steps) == sorted(ids)
        assert await one.schema.init(CALL_LIMIT_S) == []

    async def test_without_init_the_error_says_what_to_do(self, harness: ProcedureHarness) -> None:
        await harness.prepare()
        items = await harness.items(init=False)
        with pytest.raises(ConfigurationError, match=r"fencehold-nextForState-[0-9a-f]{12}") as failure:
            await next_ids(items)
        assert "init" in failure.value.hint

    async def test_the_script_names_both(self, harness: ProcedureHarness) -> None:
        script = (await opened(harness)).schema.script()
        assert all(procedure(name).id in script for name in ("lease", "nextForState"))


class TestBothPaths:
    """The etag path and the procedures on the same documents."""

    def two(self, harness: ProcedureHarness) -> tuple[ItemStore, ItemStore]:
        makers = (harness.made(by_procedure=is_procedure) for is_procedure in (False, True))
        etag, procedures = (maker.items(ITEM_KIND) for maker in makers)
        return etag, procedures

    @pytest.mark.parametrize("turn", [1, -1], ids=["etag first", "procedures first"])
    async def test_each_sees_and_respects_what_the_other_wrote(self, harness: ProcedureHarness, turn: int) -> None:
        await opened(harness)
        one, two = self.two(harness)[::turn]
        row(await one.port.put(NewItem("deal", "NEW", '{"n":1}', "ada"), CALL_LIMIT_S))
        held = row(await one.leases.acquire("deal", "ada", LEASE_S, CALL_LIMIT_S))
        no = refused(await two.leases.acquire("deal", "bob", LEASE_S, CALL_LIMIT_S))
        assert no.current is not None
        assert (no.reason, no.current.holder_id, no.current.expires_at) == (HELD_BY_ANOTHER, "ada", held.expires_at)
        assert await next_ids(two, holder="bob") == []
        assert list(await two.leases.renew([held.key], 2 * LEASE_S, CALL_LIMIT_S)) == [held.key]
        assert row(await one.port.save(held.key, "SENT", None, CALL_LIMIT_S)).lease_s == 2 * LEASE_S
        again = row(await two.leases.acquire("deal", "ada", LEASE_S, CALL_LIMIT_S))
        assert refused(await one.port.save(held.key, "X", None, CALL_LIMIT_S)).reason == HELD_BY_ANOTHER
        assert await one.port.delete(again.key, CALL_LIMIT_S) is None
        assert row(await two.port.put(NewItem("deal", "NEW", "2", "ada"), CALL_LIMIT_S)).token == 0
        assert refused(await one.port.save(again.key, "X", None, CALL_LIMIT_S)).reason == LAPSED
        [last] = await one.leases.next_for_state("NEW", 9, "bob", LEASE_S, CALL_LIMIT_S)
        assert held.token < again.token < last.token

    async def test_of_20_holders_on_either_path_one_acquires_and_each_item_goes_to_one(
        self, harness: ProcedureHarness
    ) -> None:
        await filled(harness, 40)
        clients = [items for _ in range(10) for items in self.two(harness)]
        asked = (
            items.leases.acquire("item 7", f"holder {n}", LEASE_S, CALL_LIMIT_S) for n, items in enumerate(clients)
        )
        answers = await asyncio.gather(*asked)
        assert sum(isinstance(answer, ItemRow) for answer in answers) == 1
        taken = await asyncio.gather(*(next_ids(one, 4, f"holder {n}") for n, one in enumerate(clients)))
        ids = [item_id for some in taken for item_id in some]
        assert len(ids) == len(set(ids))
        assert "item 7" not in ids


@pytest.mark.parametrize("harness", [3], indirect=True)
class TestBuckets:
    async def test_a_batch_is_one_request_for_each_bucket(self, harness: ProcedureHarness) -> None:
        items = await filled(harness, 30)
        taken = await items.leases.next_for_state("NEW", 100, "ada", LEASE_S, CALL_LIMIT_S)
        assert sorted(int(one.document_json) for one in taken) == list(range(30))
        assert [one.state_timestamp for one in taken] == sorted(one.state_timestamp for one in taken)
        keys = [one.key for one in taken]
        assert set(await items.leases.renew(keys, LEASE_S, CALL_LIMIT_S)) == set(keys)
        strangers = [ItemKey(key.id, "bob", 0) for key in keys]
        assert set(await items.leases.break_leases(strangers, CALL_LIMIT_S)) == set(strangers)
        assert harness.container.executed == ["execute"] * 9

    async def test_the_limit_holds_over_all_buckets_and_nothing_is_passed_over(self, harness: ProcedureHarness) -> None:
        items = await filled(harness, 30)
        taken = [await next_ids(items, 7) for _ in range(6)]
        assert [len(ids) for ids in taken] == [7, 7, 7, 7, 2, 0]
        assert len({item_id for ids in taken for item_id in ids}) == 30

    @pytest.mark.parametrize(("calls", "expected"), [((2,), Uncertain), ((1, 2, 3), ConfigurationError)])
    async def test_of_three_buckets_some_or_all_refuse(
        self, harness: ProcedureHarness, calls: Sequence[int], expected: type[Exception]
    ) -> None:
        items = await filled(harness, 30)
        keys = [one.key for one in await items.leases.next_for_state("NEW", 30, "ada", LEASE_S, CALL_LIMIT_S)]
        failing(harness, *calls, status=403)
        with pytest.raises(expected):
            await items.leases.renew(keys, LEASE_S, CALL_LIMIT_S)


class TestTrouble:
    async def test_a_call_that_the_server_stops_is_asked_for_the_rest(
        self, harness: ProcedureHarness, bridge: Bridge
    ) -> None:
        items = await filled(harness, 12)
        bridge.ask(harness.space, "accept", operations=6)
        taken = await items.leases.next_for_state("NEW", 12, "ada", LEASE_S, CALL_LIMIT_S)
        assert [one.document_json for one in taken] == [str(n) for n in range(12)]
        keys = [one.key for one in taken]
        assert list(await items.leases.renew(keys, LEASE_S, CALL_LIMIT_S)) == keys
        assert harness.container.executed == ["execute"] * (3 + 4)

    async def test_a_call_that_the_server_gives_no_time_was_not_executed(
        self, harness: ProcedureHarness, bridge: Bridge
    ) -> None:
        items = await filled(harness, 1)
        bridge.ask(harness.space, "accept", operations=1)
        with pytest.raises(Unavailable, match="not accepted"):
            await next_ids(items)
        with pytest.raises(Unavailable, match="not accepted"):
            await items.leases.acquire("item 0", "ada", LEASE_S, CALL_LIMIT_S)
        bridge.ask(harness.space, "accept", operations=None)
        assert await next_ids(items) == ["item 0"]

    @pytest.mark.parametrize(("status", "sub_status"), [(400, 412), (400, 409), (412, 0), (409, 0), (449, 0), (429, 0)])
    async def test_a_collision_is_asked_again(self, harness: ProcedureHarness, status: int, sub_status: int) -> None:
        items = await filled(harness, 1)
        failing(harness, 1, status=status, sub_status=sub_status)
        assert row(await items.leases.acquire("item 0", "ada", LEASE_S, CALL_LIMIT_S)).token == 1

    async def test_a_collision_that_does_not_end_was_not_executed(self, harness: ProcedureHarness) -> None:
        items = await filled(harness, 1)
        failing(harness, *range(1, 1000), status=400, sub_status=412)
        with pytest.raises(Unavailable):
            await items.leases.acquire("item 0", "ada", LEASE_S, SHORT_S)

    async def test_a_mistake_in_a_procedure_is_not_asked_again(self, harness: ProcedureHarness) -> None:
        items = await filled(harness, 1)
        failing(harness, 1, status=400)
        with pytest.raises(Unavailable, match="told to fail"):
            await items.leases.acquire("item 0", "ada", LEASE_S, CALL_LIMIT_S)

    async def test_no_word_after_the_call_is_unknown(self, harness: ProcedureHarness) -> None:
        items = await filled(harness, 1)
        failing(harness, 1, status=408, after=True)
        with pytest.raises(Uncertain):
            await items.leases.acquire("item 0", "ada", LEASE_S, CALL_LIMIT_S)
        assert row(await items.leases.acquire("item 0", "ada", LEASE_S, CALL_LIMIT_S)).token == 2

    async def test_a_read_without_an_answer_changed_nothing(self, harness: ProcedureHarness) -> None:
        items = await filled(harness, 1)
        failing(harness, 1, status=503, after=True)
        with pytest.raises(Unavailable):
            await items.port.get(["item 0"], CALL_LIMIT_S)

    async def test_those_that_were_leased_are_handed_out_when_a_later_call_fails(
        self, harness: ProcedureHarness, bridge: Bridge
    ) -> None:
        items = await filled(harness, 9)
        bridge.ask(harness.space, "accept", operations=4)
        failing(harness, 2, status=503)
        assert await next_ids(items) == ["item 0", "item 1", "item 2"]

    async def test_a_batch_that_is_half_done_is_unknown(self, harness: ProcedureHarness, bridge: Bridge) -> None:
        items = await filled(harness, 6)
        keys = [one.key for one in await items.leases.next_for_state("NEW", 6, "ada", LEASE_S, CALL_LIMIT_S)]
        bridge.ask(harness.space, "accept", operations=6)
        failing(harness, 2, status=403)
        with pytest.raises(Uncertain, match="part of the batch"):
            await items.leases.renew(keys, LEASE_S, CALL_LIMIT_S)
