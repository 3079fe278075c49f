"""What `fencehold doctor` says of a cluster: what protects, and what it could not see."""

from collections.abc import Callable, Iterator

import pytest

import fencehold
from fencehold.ports.checkup import Condition, State
from tests.servers.pair import Pair, running_pair
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import binaries_of


@pytest.fixture(scope="module")
def shared_pair() -> Iterator[Pair]:
    with running_pair(binaries_of()) as pair:
        yield pair


async def failover(url: str) -> Condition:
    async with fencehold.connect(url) as store:
        [found] = [one for one in await store.checkup.conditions() if one.check == "failover"]
        return found


async def test_the_doctor_names_a_cluster_in_which_nothing_protects(shared_pair: Pair) -> None:
    found = await failover(shared_pair.primary.dsn())
    assert (found.state, found.detail.split(" (")[0]) == (State.WARNING, "a cluster")
    assert "1 WAL senders" in found.detail
    assert "Not visible from here" in found.detail


async def test_the_doctor_is_content_with_a_synchronous_standby_and_says_what_it_did_not_see(shared_pair: Pair) -> None:
    shared_pair.wait_for("*")
    found = await failover(shared_pair.primary.dsn())
    shared_pair.wait_for("")
    assert (found.state, found.detail.split(" (")[0]) == (State.OK, "commits wait for '*'")
    assert "Not visible from here" in found.detail


async def test_the_doctor_is_content_with_a_server_that_nobody_follows(postgres_url: str) -> None:
    assert (await failover(postgres_url)).state is State.OK


@pytest.mark.needs("pgbouncer")
async def test_the_doctor_sees_that_something_stands_between(
    shared_pair: Pair, own_pgbouncer: Callable[..., PgBouncer]
) -> None:
    assert "through a proxy" not in (await failover(shared_pair.primary.dsn())).detail
    assert "through a proxy" in (await failover(own_pgbouncer(shared_pair.primary, "transaction").dsn())).detail
