"""The witness and the verdict can say no: each count rises when what it counts is done by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from submission_manager.demo.audit import Audit, prepare
from submission_manager.demo.evidence import Verdict, verdict
from submission_manager.model.intents import NewIntent
from submission_manager.model.outcomes import OUTCOME_UNKNOWN
from submission_manager.stores.opening import open_store
from tests.across_packages.processes import execute
from tests.submission_manager.service_url import service_url
from tests.submission_manager.stores.scene import TWICE

NOW = "'2026-01-01T00:00:00.000Z'"
LEASE = "submission-manager-executor"


@pytest.fixture(params=["sqlite", "postgres", "sqlserver"])
def url(request: pytest.FixtureRequest) -> str:
    return service_url(request)


class Hand:
    """Writes as an executor would, with nothing that keeps it from writing."""

    def __init__(self, url: str, audit: Audit) -> None:
        self.url, self._audit = url, audit

    async def grant(self, holder_id: str, epoch: int) -> None:
        if epoch == 1:
            columns = "lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, acquire_nonce"
            values = f"'{LEASE}', '{holder_id}', 1, {NOW}, {NOW}, {NOW}, 'n'"
            await execute(self.url, f"INSERT INTO submission_manager_leases ({columns}) VALUES ({values})")
        else:
            change = f"holder_id = '{holder_id}', lease_epoch = {epoch}"
            await execute(self.url, f"UPDATE submission_manager_leases SET {change} WHERE lease_name = '{LEASE}'")

    def mark(self, holder_id: str, epoch: int) -> str:
        marks = f"attempt_epoch = {epoch}, attempt_holder = '{holder_id}', attempt_started_at = {NOW}"
        return f"UPDATE submission_intents SET {marks} WHERE intent_id = 'x'"

    async def start(self, holder_id: str, epoch: int) -> None:
        await execute(self.url, self.mark(holder_id, epoch))

    async def record(self, number: int = 1, error: str = "") -> None:
        columns = "intent_id, attempt_number, started_at, finished_at, error"
        await execute(
            self.url, f"INSERT INTO submission_attempts ({columns}) VALUES ('x', {number}, {NOW}, {NOW}, '{error}')"
        )
        change = f"status = 'accepted', attempt_count = {number}, attempt_epoch = NULL, attempt_holder = NULL"
        await execute(self.url, f"UPDATE submission_intents SET {change} WHERE intent_id = 'x'")

    async def verdict(self, *calls: str, acknowledged: tuple[str, ...] = ("x",)) -> Verdict:
        return verdict(acknowledged, await self._audit.evidence(), calls)


@asynccontextmanager
async def a_hand(url: str) -> AsyncIterator[Hand]:
    audit = await prepare(url)
    store = open_store(url)
    try:
        await store.intake.submit(NewIntent("x", b"{}", TWICE), 60.0)
        yield Hand(url, audit)
    finally:
        await audit.close()
        await store.close()


def faults(found: Verdict) -> dict[str, Any]:
    return {name: count for name, count in found.faults.items() if count}


async def test_a_run_in_order_has_no_faults(url: str) -> None:
    async with a_hand(url) as hand:
        await hand.grant("a", 1)
        await hand.start("a", 1)
        await hand.record()
        found = await hand.verdict("x/1")
        assert (faults(found), found.is_good, found.attempts_per_intent) == ({}, True, {1: 1})


async def test_a_start_or_a_record_under_an_old_epoch_is_seen(url: str) -> None:
    async with a_hand(url) as hand:
        await hand.grant("a", 1)
        await hand.grant("b", 2)
        await hand.start("a", 1)
        await hand.record()
        found = await hand.verdict("x/1")
        assert faults(found) == {"starts_under_an_old_epoch": 1, "records_under_an_old_epoch": 1}
        assert not found.is_good


async def test_only_a_successor_may_call_an_outcome_unknown(url: str) -> None:
    async with a_hand(url) as hand:
        await hand.grant("a", 1)
        await hand.start("a", 1)
        await hand.grant("b", 2)
        await hand.record(error=OUTCOME_UNKNOWN)
        assert faults(await hand.verdict()) == {}
        await execute(url, "UPDATE submission_intents SET status = 'pending' WHERE intent_id = 'x'")
        await hand.start("b", 2)
        await hand.record(2, error=OUTCOME_UNKNOWN)
        assert faults(await hand.verdict()) == {"records_under_an_old_epoch": 1}


async def test_on_postgres_a_start_that_commits_after_the_next_grant_is_seen(postgres_url: str) -> None:
    """The known hole of checking before committing: when it was written, it was still in order."""
    async with a_hand(postgres_url) as hand:
        await hand.grant("a", 1)
        async with await psycopg.AsyncConnection.connect(postgres_url) as late:
            await late.execute(hand.mark("a", 1).encode())
            await hand.grant("b", 2)
        assert (await hand.verdict()).starts_under_an_old_epoch == 1


async def test_calls_and_records_without_a_start_and_losses_are_counted(url: str) -> None:
    async with a_hand(url) as hand:
        await hand.grant("a", 1)
        found = await hand.verdict("x/1", "x/1", "x/2", acknowledged=("x", "never stored"))
        assert faults(found) == {
            "intents_lost": 2, "calls_without_start": 3, "calls_repeated": 1, "intents_called_too_often": 1,
        }  # fmt: skip
        await hand.record()
        assert faults(await hand.verdict()) == {"attempts_without_start": 1}
