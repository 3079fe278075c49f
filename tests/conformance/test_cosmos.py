"""Cosmos DB and the conformance suite, as far as it goes without fenced transactions.

What the suite's own tests do under a fence is left out here and said below; tests/cosmos has what takes its place.
"""

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.cosmos_harness import CosmosHarness, without
from tests.servers.cosmos import CosmosServer


@pytest.fixture
def harness(cosmos_server: CosmosServer) -> Harness:
    return CosmosHarness(cosmos_server)


class TestRules(conformance.Rules): ...


class TestVerbs(conformance.Verbs): ...


class TestSilence(conformance.Silence): ...


class TestWalk(conformance.Walk): ...


@without("test_the_longest_name_and_holder_fit")
class TestNames(conformance.Names): ...


@without(
    "test_a_clock_that_is_hours_off_changes_nothing",
    "test_a_jump_forward_gives_the_lease_away_and_stops_the_first_holder",
    "test_a_jump_back_keeps_the_holder_and_the_epoch_rising",
    "test_a_stale_token_stays_stale_when_the_clock_goes_back",
    "test_the_local_limit_is_honoured_whatever_the_store_says",
)
@pytest.mark.fault("server-clock", "leader")
class TestTimes(conformance.Times): ...


@without(
    "test_a_frozen_fenced_transaction_ends_with_its_term_and_writes_nothing",
    "test_a_connection_cut_inside_the_body_writes_nothing",
    "test_a_lost_answer_to_the_commit_is_uncertain",
    "test_a_commit_that_never_arrived_is_no_yes",
)
@pytest.mark.fault("reset", "leader")
@pytest.mark.fault("frozen-tcp", "leader")
class TestNetworkFaults(conformance.NetworkFaults): ...
