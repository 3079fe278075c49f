"""Tests that only the store's clock counts, even if it is hours off or jumps.

It is not compared with the process's clock.
"""

from __future__ import annotations

import datetime as dt

import pytest

from fencehold.model.election.rules import Refusal, TermKey
from fencehold.model.errors import LeaseLost
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.fences import is_kept_out, is_let_in
from fencehold.testing.conformance.suite import (
    LEASE,
    LEASE_S,
    START,
    LeaseTests,
    ask,
    granted,
    needs,
    renew,
    row,
    take,
)
from fencehold.testing.harness import CALL_LIMIT_S, Can, Harness

HOURS = dt.timedelta(hours=7)


class Times(LeaseTests):
    @pytest.mark.parametrize("ahead", [HOURS, -HOURS, dt.timedelta(days=4000)], ids=["ahead", "behind", "years ahead"])
    async def test_a_clock_that_is_hours_off_changes_nothing(
        self, harness: Harness, one: Backend, two: Backend, ahead: dt.timedelta
    ) -> None:
        await harness.shift_clock(ahead)
        key = await take(one, "job", "ada")
        lease = granted(await renew(one, key))
        off = lease.renewed_at - (dt.datetime.now(dt.UTC) + ahead)
        assert abs(off) < dt.timedelta(minutes=5), "times are the store's own"
        assert 0 < lease.remaining_s <= LEASE_S
        assert isinstance(await two.leases.acquire(ask("job", "bob"), CALL_LIMIT_S), Refusal)
        await is_let_in(harness, one, key)

    @pytest.mark.parametrize(
        "instant", ["1999-12-31T23:59:59.999", "2024-02-29T23:59:59.001", "2199-12-31T12:00:00.100"]
    )
    async def test_any_instant_is_kept_exactly(self, harness: Harness, backend: Backend, instant: str) -> None:
        now = dt.datetime.fromisoformat(instant).replace(tzinfo=dt.UTC)
        await harness.set_clock(now)
        await take(backend, "job", "ada")
        found = await row(backend, "job")
        assert (found.acquired_at, found.renewed_at, found.expires_at) == (now, now, now + LEASE)
        assert found.expires_at.tzinfo is dt.UTC

    async def test_a_jump_forward_gives_the_lease_away_and_stops_the_first_holder(
        self, harness: Harness, one: Backend, two: Backend, key: TermKey
    ) -> None:
        await harness.set_clock(START + HOURS)
        second = await take(two, "job", "bob")
        assert second.epoch == key.epoch + 1
        assert isinstance(await renew(one, key), Refusal)
        await is_kept_out(harness, one, key)
        await is_let_in(harness, two, second)

    async def test_a_jump_back_keeps_the_holder_and_the_epoch_rising(
        self, harness: Harness, one: Backend, two: Backend, key: TermKey
    ) -> None:
        await harness.set_clock(START - HOURS)
        assert isinstance(await two.leases.acquire(ask("job", "bob"), CALL_LIMIT_S), Refusal)
        assert granted(await renew(one, key)).expires_at == START - HOURS + LEASE
        await harness.set_clock(START - HOURS + LEASE)
        assert (await take(two, "job", "bob")).epoch == key.epoch + 1
        await is_kept_out(harness, one, key)

    async def test_a_stale_token_stays_stale_when_the_clock_goes_back(
        self, harness: Harness, one: Backend, two: Backend, key: TermKey
    ) -> None:
        await harness.set_clock(START + LEASE)
        await take(two, "job", "bob")
        await harness.set_clock(START)
        assert isinstance(await renew(one, key), Refusal)
        assert isinstance(await one.leases.acquire(ask("job", "ada"), CALL_LIMIT_S), Refusal)
        await is_kept_out(harness, one, key)

    @needs(Can.FENCES)
    async def test_the_local_limit_is_honoured_whatever_the_store_says(self, backend: Backend, key: TermKey) -> None:
        with pytest.raises(LeaseLost):
            async with backend.fences.transaction(key, lambda: 0.0):
                pytest.fail("the term was over by the process's own clock")
