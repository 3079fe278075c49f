"""Items on Cosmos DB, by etag."""

import datetime as dt
from dataclasses import replace

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.cosmos_harness import CosmosHarness, without
from tests.servers.cosmos import CosmosServer


class ItemHarness(CosmosHarness):
    """An item's times are whole milliseconds, as in the specification."""

    traits = replace(CosmosHarness.traits, tick=dt.timedelta(milliseconds=1), walk_steps=450)


@pytest.fixture
def harness(cosmos_server: CosmosServer) -> Harness:
    return ItemHarness(cosmos_server)


class TestItemRules(conformance.ItemRules): ...


class TestItemVerbs(conformance.ItemVerbs): ...


class TestItemBatches(conformance.ItemBatches): ...


class TestItemNames(conformance.ItemNames): ...


@pytest.mark.fault("server-clock", "items")
class TestItemTimes(conformance.ItemTimes): ...


class TestItemWalk(conformance.ItemWalk): ...


# Threads are processes with less between them; those are below.
@without("test_on_threads_each_item_is_worked_on_exactly_once")
class TestItemCrowd(conformance.ItemCrowd): ...


class TestItemProcessCrowd(conformance.ItemProcessCrowd): ...
