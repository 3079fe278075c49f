"""Named leases on the server's own clock, in its whole seconds: many at once, hours off, and real processes."""

import asyncio
import datetime as dt
import json
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fencehold.backends.cosmos.server_clock import ServerClock
from fencehold.model.election.rules import Ask, Lease, Refusal, TermKey
from fencehold.model.errors import ConfigurationError, LeaseLost
from fencehold.ports.backend import events_of
from fencehold.testing.conformance.suite import granted, release, renew, row
from tests.fencehold.backends.cosmos.conftest import LIMIT_S
from tests.servers.cosmos import CosmosServer

Opened = Callable[..., Any]
LEASE_S = 60.0
HOURS = dt.timedelta(hours=7)
CONTENDERS, ROUNDS, TURNS = 32, 4, 4
ROOT = Path(__file__).parents[4]


def ask(holder: str, nonce: str = "", lease_s: float = LEASE_S) -> Ask:
    return Ask("job", holder, lease_s, nonce or holder)


async def test_of_32_at_once_exactly_one_is_granted_in_every_round(opened: Opened) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(opened(init=n == 0)) for n in range(CONTENDERS)]
        for epoch in range(1, ROUNDS + 1):
            tries = (c.leases.acquire(ask(f"holder {n}", f"{n}, {epoch}"), LIMIT_S) for n, c in enumerate(clients))
            answers = await asyncio.gather(*tries)
            winners = [(clients[n], answer) for n, answer in enumerate(answers) if isinstance(answer, Lease)]
            assert [lease.epoch for _, lease in winners] == [epoch]
            client, lease = winners[0]
            granted(await release(client, lease.key(LEASE_S)))


async def test_processes_take_turns_and_no_epoch_is_granted_twice_or_skipped(opened: Opened, cosmos_url: str) -> None:
    async with opened():
        commands = [
            [sys.executable, "-m", "tests.fencehold.backends.cosmos.lease_process", cosmos_url, f"p{n}", str(TURNS)]
            for n in range(3)
        ]
        pipe = asyncio.subprocess.PIPE
        crowd = [await asyncio.create_subprocess_exec(*one, stdout=pipe, stderr=pipe, cwd=ROOT) for one in commands]
        told = await asyncio.gather(*(process.communicate() for process in crowd))
        assert [process.returncode for process in crowd] == [0] * len(crowd), told
        epochs = sorted(epoch for out, _ in told for epoch in json.loads(out))
        assert epochs == list(range(1, TURNS * len(crowd) + 1))


@pytest.mark.parametrize("ahead", [HOURS, -HOURS, dt.timedelta(days=4000)], ids=["ahead", "behind", "years ahead"])
async def test_a_server_whose_clock_is_hours_off_changes_nothing(
    opened: Opened, cosmos_server: CosmosServer, ahead: dt.timedelta
) -> None:
    cosmos_server.shift_clock(ahead.total_seconds())
    async with opened() as one, opened() as two:
        key = granted(await one.leases.acquire(ask("ada"), LIMIT_S)).key(LEASE_S)
        lease = granted(await renew(one, key))
        off = lease.renewed_at - (dt.datetime.now(dt.UTC) + ahead)
        assert abs(off) < dt.timedelta(minutes=5), "times are the server's own"
        assert 0 < lease.remaining_s <= LEASE_S
        assert isinstance(await two.leases.acquire(ask("bob"), LIMIT_S), Refusal)


async def test_a_server_that_jumps_ahead_gives_the_lease_away_once_the_next_reading_shows_it(
    opened: Opened, cosmos_server: CosmosServer
) -> None:
    async with opened() as one, opened() as two:
        first = granted(await one.leases.acquire(ask("ada"), LIMIT_S)).key(LEASE_S)
        cosmos_server.shift_clock(HOURS.total_seconds())
        second = granted(await two.leases.acquire(ask("bob"), LIMIT_S))
        assert second.epoch == first.epoch + 1
        assert isinstance(await renew(one, first), Refusal), "its window is an old one, and the etag tells"
        cosmos_server.shift_clock(0.0)
        assert isinstance(await renew(one, first), Refusal), "a stale token stays stale when the clock goes back"


class LaggingClock(ServerClock):
    """What a client knows that has just read the clock, and then stands still before it writes."""

    stands_at_s: float | None = None

    def __init__(self) -> None:
        super().__init__(lambda: self.stands_at_s if self.stands_at_s is not None else self.boot_s())

    @staticmethod
    def boot_s() -> float:
        return ServerClock().now_s()


async def test_a_renewal_judged_live_long_ago_is_refused_by_the_etag_once_somebody_took_over(
    opened: Opened, cosmos_server: CosmosServer
) -> None:
    clock = LaggingClock()
    async with opened(clock) as one, opened() as two:
        key = granted(await one.leases.acquire(ask("ada"), LIMIT_S)).key(LEASE_S)
        clock.stands_at_s = clock.boot_s()
        cosmos_server.shift_clock(HOURS.total_seconds())
        granted(await two.leases.acquire(ask("bob"), LIMIT_S))
        assert isinstance(await renew(one, key), Refusal)
        assert isinstance(await release(one, key), Refusal)
        assert (await row(two, "job")).holder_id == "bob"


async def test_a_lease_given_back_is_free_at_once_for_a_client_whose_window_lies_lower(opened: Opened) -> None:
    """Both windows are a second wide, and either may begin anywhere in it."""
    async with opened() as one, opened() as two:
        await two.leases.read(["job"], LIMIT_S)  # its window is from now on older than the other's
        for turn in range(5):
            for client, holder in ((one, "ada"), (two, "bob")):
                lease = granted(await client.leases.acquire(ask(holder, f"{holder} {turn}"), LIMIT_S))
                granted(await release(client, lease.key(LEASE_S)))


async def test_the_longest_name_and_holder_fit(opened: Opened) -> None:
    async with opened() as backend:
        request = Ask("\U0001f98a" * 64, "\U0001f98a" * 128, LEASE_S, "n" * 64)
        key = granted(await backend.leases.acquire(request, LIMIT_S)).key(LEASE_S)
        granted(await renew(backend, key))
        found = await row(backend, request.name)
        assert (found.name, found.holder_id, found.nonce) == (request.name, request.holder_id, request.nonce)


async def test_two_tables_in_one_container_do_not_meet(cosmos_url: str, opened: Opened) -> None:
    from fencehold.backends.cosmos.address import parse
    from fencehold.backends.cosmos.backend import CosmosBackend

    async with opened() as one:
        other = CosmosBackend(parse(cosmos_url), "other_leases")
        granted(await one.leases.acquire(ask("ada"), LIMIT_S))
        try:
            assert granted(await other.leases.acquire(ask("bob"), LIMIT_S)).epoch == 1
            assert [lease.holder_id for lease in await other.leases.list("", LIMIT_S)] == ["bob"]
        finally:
            await other.close()


async def test_a_renewal_and_a_release_are_one_request_each(opened: Opened, cosmos_server: CosmosServer) -> None:
    async with opened() as backend:
        key = granted(await backend.leases.acquire(ask("ada"), LIMIT_S)).key(LEASE_S)
        before = cosmos_server.request_count()
        granted(await renew(backend, key))
        granted(await renew(backend, key))
        granted(await release(backend, key))
        assert cosmos_server.request_count() - before == 3


async def test_what_cannot_be_fenced_is_refused_with_what_to_do_instead(opened: Opened) -> None:
    key = TermKey("job", "ada", 1, LEASE_S)
    async with opened() as backend:
        for refused in (
            lambda: backend.fences.transaction(key, lambda: 1.0),
            lambda: backend.fences.transaction_sync(key, lambda: 1.0),
            lambda: backend.fences.fence(object(), key),
            lambda: backend.fences.guard(key),
        ):
            with pytest.raises(ConfigurationError) as caught:
                refused()
            assert caught.value.code == "no_transactions"
            assert "term.is_valid" in caught.value.hint
        with pytest.raises(LeaseLost):
            backend.fences.fence(object(), key, over=True)
        with pytest.raises(ConfigurationError) as caught:
            events_of(backend, "outbox")
        assert caught.value.code == "no_outbox"
