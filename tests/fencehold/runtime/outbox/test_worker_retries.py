"""Tries, dead letters, redrive and purge: what is tried again, how often, and what is never deleted."""

import random
from typing import Any

import pytest

import fencehold
from fencehold.model.outbox.settings import Backoff
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import (
    LONG_AGO,
    Gate,
    all_are,
    becomes,
    code_of,
    dialect,
    eventually,
    make_due,
    row,
    rows,
    running,
    statuses,
    update,
)


def test_a_delay_doubles_with_each_try_within_its_bounds() -> None:
    backoff, rng = Backoff(base_s=1.0, cap_s=30.0), random.Random(7)
    for attempt in range(1, 40):
        plain_s = 2.0 ** (attempt - 1)
        delays_s = [backoff.delay_s(attempt, rng) for _ in range(200)]
        assert all(min(30.0, plain_s) <= delay_s <= min(30.0, plain_s * 1.1) for delay_s in delays_s)
    assert len({backoff.delay_s(2, rng) for _ in range(50)}) > 40, "with jitter"


@pytest.mark.parametrize("attempt", [-5, 0, 1, 2, 100, 10**9])
def test_a_delay_is_never_immediate_and_never_above_the_cap(attempt: int) -> None:
    rng = random.Random(7)
    assert Backoff(base_s=0.000001, cap_s=0.00001).delay_s(attempt, rng) == 0.1
    assert 0.1 <= Backoff(base_s=1.0, cap_s=300.0).delay_s(attempt, rng) <= 300.0


@pytest.mark.parametrize("max_retries", [1, 3])
async def test_an_event_is_a_dead_letter_after_exactly_max_retries_tries(
    url: str, opened: Opened, max_retries: int
) -> None:
    tries: list[int] = []

    async def broken(event: fencehold.Claim) -> None:
        tries.append(event.attempt)
        raise ValueError(f"try {event.attempt}")

    async with opened(url, max_retries=max_retries, retry_base="100ms", retry_cap="100ms") as (outbox, heard):
        event = await outbox.add("a", {"schema_version": 1})
        async with running(outbox.worker(broken, poll_every="20ms")):
            found = await becomes(url, event, "DEAD_LETTER")
        assert tries == list(range(1, max_retries + 1))
        assert found["retry_count"] == max_retries
        assert found["last_error"].startswith(f"ValueError: try {max_retries}\n")
        assert found["processed_at"] is not None
        assert found["locked_until"] is found["lock_token"] is None
        told = [fact["status"] for fact in heard.all("event_failed")]
        assert told == ["FAILED"] * (max_retries - 1) + ["DEAD_LETTER"]


async def test_a_failed_event_waits_for_its_backoff(url: str, opened: Opened) -> None:
    async with opened(url, retry_base="20s", retry_cap="60s") as (outbox, _):
        await outbox.add("a", 1)
        for low_s, high_s in ((20, 22.5), (40, 44.5), (59, 60.5), (59, 60.5)):
            (claim,) = await eventually(lambda: outbox.claim(1, "w"))
            assert await outbox.fail(claim, RuntimeError("no")) is fencehold.Status.FAILED
            (found,) = await outbox.find()
            assert low_s - 1 < found.waits_s < high_s
            await make_due(url)


async def test_a_poison_event_does_not_hold_up_others(url: str, opened: Opened) -> None:
    async def handle(event: fencehold.Claim) -> None:
        if event.payload == "poison":
            raise ValueError

    async with opened(url, retry_base="100ms", max_retries=2) as (outbox, _):
        poison = await outbox.add("a", "poison")
        others = await outbox.add_many([("a", n) for n in range(5)])
        async with running(outbox.worker(handle, concurrency=1, poll_every="20ms")):
            for event in others:
                await becomes(url, event, "COMPLETED")
            await becomes(url, poison, "DEAD_LETTER")


async def dead(outbox: fencehold.Outbox, *types: str) -> list[str]:
    """One dead letter of each of these types."""
    events = await outbox.add_many([(kind, n) for n, kind in enumerate(types)])
    claims = await eventually(lambda: outbox.claim(len(types), "w"))
    assert len(claims) == len(types)
    for claim in claims:
        assert await outbox.fail(claim, "broken", retry=False) is fencehold.Status.DEAD_LETTER
    return events


async def test_a_redrive_is_scoped_by_type_and_says_why(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        paid, shipped = await dead(outbox, "paid", "shipped")
        assert await outbox.redrive("paid", "the bank was down") == [paid]
        found = await row(url, paid)
        assert (found["status"], found["retry_count"], found["last_error"]) == ("PENDING", 0, None)
        assert (found["root_cause"], found["processed_at"]) == ("the bank was down", None)
        assert (await row(url, shipped))["status"] == "DEAD_LETTER"
        fact = await heard.once("events_redriven")
        assert (fact["event_type"], fact["count"], fact["root_cause"]) == ("paid", 1, "the bank was down")


async def test_a_redrive_is_spread_over_time_and_has_a_limit(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        events = await dead(outbox, *["paid"] * 5)
        assert await outbox.redrive("paid", "why", limit=4) == events[:4]
        waits_s = [found.waits_s for found in reversed(await outbox.find())][:4]
        for place, wait_s in enumerate(waits_s):
            assert 0.6 * place - 0.5 < wait_s < 0.6 * place + 0.01, "100 a minute"
        assert await outbox.redrive("paid", "why", per_minute=6000) == events[4:]


@pytest.mark.parametrize("cause", ["", "   "])
async def test_a_redrive_without_a_root_cause_is_refused(url: str, opened: Opened, cause: str) -> None:
    async with opened(url) as (outbox, _):
        await dead(outbox, "paid")
        with pytest.raises(fencehold.ConfigurationError) as error:
            await outbox.redrive("paid", cause)
        assert code_of(error) == "no_root_cause"
        assert await statuses(url) == ["DEAD_LETTER"]


async def test_a_dry_run_answers_the_same_and_changes_nothing(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        events = await dead(outbox, "paid", "paid")
        before = await rows(url)
        assert await outbox.redrive("paid", "why", dry_run=True) == events
        assert await outbox.retry(events, dry_run=True) == events
        await update(url, f"processed_at = {LONG_AGO[dialect(url)]}")
        assert await outbox.purge("1d", statuses=[fencehold.Status.DEAD_LETTER], dry_run=True) == 2
        assert [found["status"] for found in await rows(url)] == [found["status"] for found in before]


async def test_retry_takes_those_named_and_only_failed_or_dead(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        (buried, other) = await dead(outbox, "a", "a")
        done, waiting = await outbox.add_many([("a", 1), ("a", 2)])
        claims = await eventually(lambda: outbox.claim(1, "w"))
        assert await outbox.complete(claims) == claims
        assert claims[0].tracking_id == done
        assert await outbox.retry([buried, done, waiting], "mended") == [buried]
        assert (await row(url, buried))["status"] == "PENDING"
        assert (await row(url, other))["status"] == "DEAD_LETTER"
        assert await outbox.retry([]) == []


async def one_of_each(outbox: fencehold.Outbox) -> None:
    await dead(outbox, "dead")
    await outbox.add_many([("done", 0), ("failed", 0), ("held", 0), ("waits", 0)])
    done, failed, _ = await eventually(lambda: outbox.claim(3, "w"))
    assert await outbox.complete(done) == [done]
    assert await outbox.fail(failed, "no") is fencehold.Status.FAILED


async def test_purge_deletes_old_completed_events_and_never_unfinished_ones(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        await one_of_each(outbox)
        assert await outbox.purge("1d") == 0, "too young"
        old = LONG_AGO[dialect(url)]
        await update(url, f"created_at = {old}, processed_at = {old}")
        assert await outbox.purge("1d") == 1
        assert sorted(await statuses(url)) == ["DEAD_LETTER", "FAILED", "PENDING", "PROCESSING"]
        assert await outbox.purge("1d", statuses=[fencehold.Status.DEAD_LETTER]) == 1
        assert sorted(await statuses(url)) == ["FAILED", "PENDING", "PROCESSING"]
        assert sum(fact["count"] for fact in heard.all("events_purged")) == 2


@pytest.mark.parametrize("wrong", [["PENDING"], ["COMPLETED", "PROCESSING"], ["FAILED"], [], ["bogus"]], ids=repr)
async def test_purge_refuses_what_is_not_finished(url: str, opened: Opened, wrong: list[Any]) -> None:
    async with opened(url) as (outbox, _):
        await one_of_each(outbox)
        with pytest.raises(fencehold.ConfigurationError) as error:
            await outbox.purge("1s", statuses=wrong)
        assert code_of(error) == "bad_status"
        assert len(await rows(url)) == 5


async def test_the_statement_itself_purges_nothing_unfinished(url: str, opened: Opened) -> None:
    """Whoever asks the admin past the outbox's own check."""
    async with opened(url) as (outbox, _):
        await one_of_each(outbox)
        old = LONG_AGO[dialect(url)]
        await update(url, f"created_at = {old}, processed_at = {old}")
        unfinished = (fencehold.Status.PENDING, fencehold.Status.PROCESSING, fencehold.Status.FAILED)
        assert await outbox._events_here().admin.purge(fencehold.Filter(unfinished, (), (), 1.0), 100, 5.0) == 0
        assert len(await rows(url)) == 5


async def test_purge_goes_in_batches_and_tells_how_far_it_is(
    url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencehold.runtime.outbox.outbox.PURGE_BATCH", 2)
    async with opened(url) as (outbox, _):
        await outbox.add_many([("a", n) for n in range(5)])
        async with running(outbox.worker(Gate(is_open=True))):
            await all_are(url, "COMPLETED", 5)
        await update(url, f"processed_at = {LONG_AGO[dialect(url)]}")
        seen: list[int] = []
        assert await outbox.purge("1d", on_progress=seen.append) == 5
        assert seen == [2, 4, 5]


async def test_stats_count_every_status(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        await one_of_each(outbox)
        stats = await outbox.stats()
        assert (stats.pending, stats.processing, stats.completed, stats.failed, stats.dead_letter) == (1, 1, 1, 1, 1)
