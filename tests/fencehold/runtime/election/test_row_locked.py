"""Somebody keeps the row of a lease locked: asked less and less often, and told of by name, once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencehold import LeaseLost
from fencehold.model.election.rules import Ask, Busy, TermKey
from fencehold.ports.leases import Answer
from fencehold.telemetry.logs import level_of
from tests.fencehold.runtime.election.election_parts import SETTINGS, Town
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock, virtual


class Facts:
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append((event, fields))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.told if name == event]


class LockedTown(Town):
    """Its lease row is locked while `is_locked`."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = self.facts = Facts()  # type: ignore[assignment]
        self.is_locked = False
        self.tries: list[float] = []

    async def locked_candidate(self, holder_id: str):
        leader = await self.candidate(holder_id)
        leases = leader._context.keeper.backend.leases
        acquire, renew = leases.acquire, leases.renew

        async def acquired(ask: Ask, limit_s: float) -> Answer:
            if not self.is_locked:
                return await acquire(ask, limit_s)
            self.tries.append(LoopClock().now_s())
            return Busy()

        async def renewed(keys: list[TermKey], limit_s: float) -> list[Answer]:
            return [Busy() for _ in keys] if self.is_locked else await renew(keys, limit_s)

        leases.acquire, leases.renew = acquired, renewed  # type: ignore[method-assign, assignment]
        return leader


@virtual
async def test_a_row_that_stays_locked_is_asked_for_less_and_less_often_and_taken_soon_after_it_is_free() -> None:
    town = LockedTown()
    town.is_locked = True
    leader = await town.locked_candidate("a")
    await leader.start()
    await asyncio.sleep(40)
    assert 40 < len(town.tries) < 100  # 19 a second before
    town.is_locked = False
    assert await leader.wait_for_leadership(1.1)


@virtual
async def test_a_lock_as_short_as_those_of_fencehold_itself_is_not_noticed() -> None:
    town = LockedTown()
    town.is_locked = True
    leader = await town.locked_candidate("a")
    await leader.start()
    await asyncio.sleep(0.3)
    town.is_locked = False
    assert await leader.wait_for_leadership(0.06)
    assert town.heard.of("lease_row_locked") == []


@virtual
async def test_a_lock_is_named_once_a_minute_and_its_tries_are_no_lines_of_their_own() -> None:
    town = LockedTown()
    town.is_locked = True
    leader = await town.locked_candidate("a")
    await leader.start()
    await asyncio.sleep(100)
    told = town.heard.of("lease_row_locked")
    assert [fields["lease_name"] for fields in told] == ["one", "one"]
    assert "another session" in told[0]["why"]
    lines = [fields for fields in town.heard.of("leader_acquire_failed") if not fields.get("is_repeat")]
    assert len(lines) == 1
    assert level_of("leader_acquire_failed", {"is_repeat": True}, {"leader_acquire_failed": 20}) < 20


@virtual
async def test_a_leader_that_cannot_renew_because_of_a_lock_says_so_before_it_loses_its_lease() -> None:
    town = LockedTown()
    leader = await town.locked_candidate("a")
    await leader.start()
    assert await leader.wait_for_leadership(1)
    town.is_locked = True
    await asyncio.sleep(SETTINGS.lease_s)
    events = [event for event, _ in town.heard.told]
    assert events.index("lease_row_locked") < events.index("leader_lost")
    assert [fields["reason"] for fields in town.heard.of("leader_lost")] == ["deadline_passed"]


@virtual
async def test_a_deadline_that_has_passed_is_one_reason_whoever_notices_it() -> None:
    town = LockedTown()
    leader = await town.locked_candidate("a")
    await leader.start()
    assert await leader.wait_for_leadership(1)
    term = leader.term
    assert term is not None
    term._held.deadline_s = LoopClock().now_s()  # and nobody has come by since
    with pytest.raises(LeaseLost, match="its local deadline has passed"):
        term.check()
    assert [fields["reason"] for fields in town.heard.of("leader_lost")] == ["deadline_passed"]
