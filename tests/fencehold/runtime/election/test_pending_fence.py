"""A fence that is not awaited fences nothing: it says so, and ends the term."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

import pytest

from fencehold.model.errors import LeaseLost
from fencehold.runtime.election.keeper import HeldLease
from fencehold.runtime.election.term import Term
from tests.fencehold.runtime.election.term_parts import Fences, a_term, for_ever
from tests.fencehold.testing.simulation.on_virtual_time import virtual

ASYNC: Any = "async"  # the fence of these tests is awaited for it
NEVER_AWAITED = pytest.mark.filterwarnings("ignore:coroutine 'Term._awaited' was never awaited")


class Told:
    def __init__(self) -> None:
        self.facts: list[tuple[str, dict[str, Any]]] = []

    def fact(self, event: str, **fields: Any) -> None:
        self.facts.append((event, fields))


def a_told_term() -> tuple[Term, HeldLease, Fences, Told]:
    term, held, fences = a_term()
    told = Told()
    held._sink = told
    return term, held, fences, told


@NEVER_AWAITED
@virtual
async def test_a_fence_that_is_dropped_is_told_as_an_error_with_what_to_do_and_ends_the_term() -> None:
    term, held, _, told = a_told_term()
    term.fence(ASYNC)
    assert not term.is_valid
    await asyncio.sleep(0)
    (first, fields), (last, _) = told.facts
    assert (first, last, held.ended_because) == ("fence_not_awaited", "leader_lost", "fence_not_awaited")
    assert (fields["lease_name"], fields["lease_epoch"]) == ("one", 1)
    assert "await term.fence(connection)" in fields["hint"]


@NEVER_AWAITED
@virtual
async def test_whoever_sees_such_a_term_over_before_it_is_told_takes_it_for_no_deadline() -> None:
    term, held, _, told = a_told_term()
    term.fence(ASYNC)
    assert held.end("deadline_passed")  # as the keeper does with what is not valid any more
    await asyncio.sleep(0)
    assert [fields["reason"] for event, fields in told.facts if event == "leader_lost"] == ["fence_not_awaited"]


@NEVER_AWAITED
@virtual
async def test_nothing_fenced_begins_after_a_fence_that_was_dropped() -> None:
    term, _, _, _ = a_told_term()
    term.fence(ASYNC)
    with pytest.raises(LeaseLost, match="fence_not_awaited"):
        term.check()
    with pytest.raises(LeaseLost):
        term.guard()
    with pytest.raises(LeaseLost):
        async with term.transaction():
            pass


@NEVER_AWAITED
@virtual
async def test_a_body_is_cut_short_and_its_transaction_spoiled_when_its_fence_was_dropped() -> None:
    term, _, fences, _ = a_told_term()
    async with term:
        term.fence(ASYNC)
        await for_ever()
    assert fences.spoiled == ["async"]


@virtual
async def test_a_fence_that_is_awaited_in_whatever_way_is_not_told() -> None:
    for begin in (lambda fence: fence, asyncio.ensure_future, asyncio.gather):
        term, _, _, told = a_told_term()
        with pytest.raises(LeaseLost):
            await begin(term.fence(ASYNC))
        assert "fence_not_awaited" not in [event for event, _ in told.facts]


@virtual
async def test_a_fence_in_a_task_that_is_cancelled_before_it_begins_is_not_told() -> None:
    term, _, _, told = a_told_term()
    task = asyncio.ensure_future(term.fence(ASYNC))
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    await asyncio.sleep(0)
    assert (told.facts, term.is_valid) == ([], True)


@NEVER_AWAITED
@virtual
async def test_a_fence_may_be_dropped_by_the_garbage_collector_while_the_lease_is_locked() -> None:
    term, held, _, told = a_told_term()
    with held._lock:  # a finalizer that took it would wait for ever
        term.fence(ASYNC)
        assert told.facts == []
    await asyncio.sleep(0)
    assert held.ended_because == "fence_not_awaited"


def test_a_fence_dropped_when_its_loop_is_closed_is_told_all_the_same() -> None:
    kept: list[Any] = []

    @virtual
    async def run() -> None:
        term, _, _, told = a_told_term()
        kept.extend([term, told, term.fence(ASYNC)])

    run()
    with pytest.warns(RuntimeWarning, match="never awaited"):
        kept.pop()
    assert kept[1].facts[0][0] == "fence_not_awaited"
