"""Rules 020, sections 1 and 2: every claim is a lease with a token of its own, renewed while it is worked on."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

import fencehold
from fencehold.backends.postgres.outbox.events import PostgresEventPort
from fencehold.backends.sqlite.outbox.events import SqliteEventPort
from fencehold.backends.sqlserver.outbox.events import SqlServerEventPort
from fencehold.ports.events import ClaimAsk
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import (
    HOUR,
    Gate,
    becomes,
    code_of,
    dialect,
    enough_s,
    eventually,
    lapse,
    make_due,
    row,
    rows,
    running,
    statuses,
    update,
)


async def held_s(outbox: fencehold.Outbox) -> float:
    (found,) = await outbox.find()
    assert found.held_s is not None
    return found.held_s


async def test_rule_020_001_every_claim_takes_a_time_bounded_lease(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        await outbox.add_many([("a", n) for n in range(3)])
        claims = await outbox.claim(2, "w")
        held, free = await rows(url, "status = 'PROCESSING'"), await rows(url, "status = 'PENDING'")
        assert (len(held), len(free)) == (2, 1)
        assert {each["lock_token"] for each in held} == {claim.token for claim in claims}
        assert all(each["locked_until"] is not None for each in held)
        assert all(claim.locked_until is not None for claim in claims)
        assert free[0]["locked_until"] is free[0]["lock_token"] is None


async def test_rule_020_001_a_claimed_event_is_nobody_elses_until_its_lease_is_over(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        await outbox.add("a", 1)
        (first,) = await outbox.claim(1, "w")
        assert await outbox.claim(1, "other") == []
        await lapse(url)
        assert await outbox.claim(1, "other") == [], "lapsed is the reaper's, not a claimer's"
        await outbox.reap()
        (second,) = await outbox.claim(1, "other")
        assert second.token != first.token


async def test_rule_020_002_a_lease_is_30_s_unless_told(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        await outbox.add("a", 1)
        await outbox.claim(1, "w")
        assert 28 < await held_s(outbox) <= 30


@pytest.mark.parametrize("lease", [60, "120s"])
async def test_rule_020_002_a_lease_can_be_longer(url: str, opened: Opened, lease: Any) -> None:
    lease_s = 60 if lease == 60 else 120
    async with opened(url, lease=lease) as (outbox, _):
        await outbox.add("a", 1)
        await outbox.claim(1, "w")
        assert lease_s - 2 < await held_s(outbox) <= lease_s


async def test_rule_020_002_a_lease_is_configurable_at_runtime(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        await outbox.add("a", 1)
        claims = await outbox.claim(1, "w")
        outbox.configure(lease="90s")
        assert await outbox.renew(claims) == claims
        assert 88 < await held_s(outbox) <= 90


async def test_rule_020_002_a_worker_that_runs_keeps_up_with_a_lease_made_shorter(url: str, opened: Opened) -> None:
    lease_s = enough_s(url, 0.6)
    async with opened(url, lease="30s") as (outbox, heard):
        gate = Gate()
        async with running(outbox.worker(gate)):
            await heard.once("worker_started")
            outbox.configure(lease=lease_s)
            event = await outbox.add("a", 1)
            await gate.has(1)
            await asyncio.sleep(2.5 * lease_s)  # healthy work of two and a half of the new leases
            gate.open()
            assert (await becomes(url, event, "COMPLETED"))["retry_count"] == 0
            assert len(gate.entered) == 1


async def test_rule_020_003_every_claim_has_a_token_of_its_own(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        await outbox.add_many([("a", n) for n in range(3)])
        tokens = [(await outbox.claim(1, "w"))[0].token for _ in range(3)]
        assert len(set(tokens)) == 3, "one worker, three claims"


@pytest.mark.parametrize("wrong", ["", "w/0", "other"])
async def test_rule_020_003_updates_without_the_matching_token_are_rejected(
    url: str, opened: Opened, wrong: str
) -> None:
    async with opened(url) as (outbox, _):
        event = await outbox.add("a", 1)
        (claim,) = await outbox.claim(1, "w")
        before = await row(url, event)
        stranger = replace(claim, token=wrong)
        assert await outbox.complete(stranger) == []
        assert await outbox.renew(stranger) == []
        assert await outbox.fail(stranger, "no") is None
        assert await row(url, event) == before
        assert await outbox.complete([stranger, claim]) == [claim]


async def test_rule_020_003_a_worker_cannot_finish_what_it_lost_and_claimed_again(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        event = await outbox.add("a", 1)
        (stale,) = await outbox.claim(1, "w")
        await lapse(url)
        await outbox.reap()
        (fresh,) = await outbox.claim(1, "w")
        assert await outbox.complete(stale) == []
        assert await outbox.fail(stale, "late") is None
        assert (await row(url, event))["status"] == "PROCESSING"
        assert await outbox.complete(fresh) == [fresh]


@pytest.mark.parametrize("verb", ["complete", "fail", "renew"])
async def test_rule_020_003_a_lapsed_lease_is_over_before_anybody_took_it(url: str, opened: Opened, verb: str) -> None:
    async with opened(url) as (outbox, _):
        event = await outbox.add("a", 1)
        (claim,) = await outbox.claim(1, "w")
        await lapse(url)
        before = await row(url, event)
        answer = await (outbox.fail(claim, "no") if verb == "fail" else getattr(outbox, verb)(claim))
        assert not answer
        assert await row(url, event) == before


@pytest.mark.parametrize("status", ["COMPLETED", "PENDING", "FAILED", "DEAD_LETTER"])
async def test_rule_020_003_only_what_is_processing_can_be_finished(url: str, opened: Opened, status: str) -> None:
    """Even with the right token and a time in the future."""
    async with opened(url) as (outbox, _):
        event = await outbox.add("a", 1)
        (claim,) = await outbox.claim(1, "w")
        await update(url, f"status = '{status}', locked_until = {HOUR[dialect(url)]}")
        before = await row(url, event)
        assert await outbox.complete(claim) == []
        assert await outbox.renew(claim) == []
        assert await outbox.fail(claim, "no") is None
        assert await row(url, event) == before


@pytest.mark.parametrize("why", ["token", "lapsed", "status"])
async def test_rule_020_003_a_completion_sent_along_with_a_claim_is_checked_as_well(
    url: str, opened: Opened, why: str
) -> None:
    """A worker's turn is one statement on PostgreSQL, and another than that of a completion alone."""
    async with opened(url) as (outbox, _):
        bad, good, _ = await outbox.add_many([("a", n) for n in range(3)])
        claims = {claim.tracking_id: claim for claim in await outbox.claim(2, "w")}
        if why == "token":
            claims[bad] = replace(claims[bad], token="stranger")
        elif why == "lapsed":
            await lapse(url, f"tracking_id = '{bad}'")
        else:
            await update(url, "status = 'FAILED'", f"tracking_id = '{bad}'")
        before = await row(url, bad)
        ask = ClaimAsk(5, "next/1", 30.0, event_types=("a",), may_miss=True)
        turn = await outbox._events_here().port.turn(list(claims.values()), ask, 5.0)
        assert [key.tracking_id for key in turn.completed] == [good]
        assert (await row(url, good))["status"] == "COMPLETED"
        if why != "status":
            assert await row(url, bad) == before


async def test_rule_020_010_a_worker_renews_the_lease_of_what_it_works_on(url: str, opened: Opened) -> None:
    async with opened(url, lease=enough_s(url, 0.6)) as (outbox, heard):
        gate = Gate()
        event = await outbox.add("a", 1)
        async with running(outbox.worker(gate, worker_id="w")):
            await gate.has(1)
            seen = {(await row(url, event))["locked_until"]}
            for _ in range(3):

                async def moved() -> bool:
                    return (await row(url, event))["locked_until"] not in seen

                await eventually(moved)
                seen.add((await row(url, event))["locked_until"])
            gate.open()
            await becomes(url, event, "COMPLETED")
        assert len(gate.entered) == 1
        assert heard.all("worker_heartbeat", worker_id="w", sent=1, refused=0)


async def test_rule_020_011_a_heartbeat_of_a_third_or_more_is_refused(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _), fencehold.connect(url) as store:
        for heartbeat in ("10s", "10.001s", "30s", "40s"):
            with pytest.raises(fencehold.ConfigurationError) as error:
                outbox.configure(lease="30s", heartbeat_every=heartbeat)
            assert code_of(error) == "bad_settings"
            assert "third" in str(error.value)
            with pytest.raises(fencehold.ConfigurationError, match="third"):
                store.outbox(lease="30s", heartbeat_every=heartbeat)


async def test_rule_020_011_the_default_heartbeat_is_below_a_third(url: str, opened: Opened) -> None:
    for lease_s in (0.3, 1.0, 30.0, 120.0):
        async with opened(url, lease=lease_s) as (outbox, _):
            assert outbox.settings.heartbeat_every_s < lease_s / 3
    async with opened(url, lease=30, heartbeat_every=9.99) as (outbox, _):
        assert outbox.settings.heartbeat_every_s == 9.99


async def test_rule_020_012_a_failed_heartbeat_stops_the_handler_and_leaves_the_event_to_the_reaper(
    url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_cut_off = False

    def renewing(port: Any) -> Any:
        async def renew(self: Any, *asked: Any) -> Any:
            if is_cut_off:
                raise fencehold.Unavailable("cut off", code="unreachable")
            return await whole(self, *asked)

        whole = port.renew
        return renew

    for port in (PostgresEventPort, SqliteEventPort, SqlServerEventPort):
        monkeypatch.setattr(port, "renew", renewing(port))
    async with opened(url, lease=enough_s(url, 0.6)) as (outbox, heard):
        first, second = Gate(), Gate(is_open=True)
        event = await outbox.add("a", 1)
        async with running(outbox.worker(first)):
            await first.has(1)
            is_cut_off = True
            await first.until(lambda: first.cancelled == [event])
            await heard.once("event_lost", reason="heartbeat_failed")
            assert await statuses(url) == ["PROCESSING"], "neither completed nor failed: nobody was told"
            await heard.once("event_recovered", tracking_id=event, status="PENDING")
            is_cut_off = False
            async with running(outbox.worker(second)):
                first.open()
                assert (await becomes(url, event, "COMPLETED"))["retry_count"] == 1


async def test_rule_020_012_a_refused_heartbeat_stops_that_handler_and_no_other(url: str, opened: Opened) -> None:
    lease_s = enough_s(url, 3.0)
    async with opened(url, lease=lease_s, reap_every=0.9 * lease_s) as (outbox, heard):
        gate = Gate()
        lost, kept = await outbox.add_many([("a", 1), ("a", 2)])
        worker = outbox.worker(gate, poll_every="1h")
        async with running(worker):
            await gate.has(2)
            taken = (await row(url, lost))["id"]
            await update(url, "lock_token = 'somebody else'", f"id = {taken}")
            await gate.until(lambda: gate.cancelled == [lost])
            assert (await heard.once("event_lost"))["reason"] == "lease_lost"
            gate.open()
            await becomes(url, kept, "COMPLETED")
            assert (await row(url, lost))["lock_token"] == "somebody else"
        assert gate.done == [kept]


async def test_a_failed_event_is_not_claimed_before_its_time(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        event = await outbox.add("a", 1)
        (claim,) = await outbox.claim(1, "w")
        assert await outbox.fail(claim, "no") is fencehold.Status.FAILED
        assert await outbox.claim(1, "w") == []
        await make_due(url)
        (again,) = await outbox.claim(1, "w")
        assert (again.tracking_id, again.attempt) == (event, 2)
