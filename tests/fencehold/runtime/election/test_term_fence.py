"""The fence of a term, seen from its body: what a refusal ends, and what is spoiled when the body is cut short."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencehold.model.errors import ConfigurationError, LeaseLost, Uncertain
from tests.fencehold.runtime.election.term_parts import a_term, for_ever
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock, virtual

CONN: Any = "conn"
ASYNC: Any = "async"  # the fence of these tests is awaited for it


@virtual
async def test_a_refused_transaction_raises_and_ends_the_term() -> None:
    term, held, fences = a_term()
    fences.refusing = True
    with pytest.raises(LeaseLost):
        async with term.transaction() as tx:
            await tx.execute(lambda: None)
    assert held.ended_because == "fence_refused"
    assert not term.is_valid


@virtual
async def test_a_transaction_refused_for_another_epoch_does_not_end_this_term() -> None:
    term, _, fences = a_term()
    fences.refusing, fences.epoch_refused = True, 7
    with pytest.raises(LeaseLost):
        async with term.transaction():
            pass
    assert term.is_valid


@virtual
async def test_an_error_inside_a_transaction_goes_through_and_the_term_stays() -> None:
    term, _, _ = a_term()
    with pytest.raises(ValueError, match="mine"):
        async with term.transaction():
            raise ValueError("mine")
    assert term.is_valid


@virtual
async def test_no_fenced_write_begins_past_the_deadline() -> None:
    term, _, _ = a_term()
    await asyncio.sleep(9.5)
    with pytest.raises(LeaseLost):
        async with term.transaction():
            pass
    with pytest.raises(LeaseLost):
        term.guard()
    with pytest.raises(LeaseLost):
        term.fence(CONN)


@virtual
async def test_a_fence_refused_in_the_callers_transaction_ends_the_term() -> None:
    term, held, fences = a_term()
    fences.refusing = True
    with pytest.raises(LeaseLost):
        term.fence(CONN)
    assert held.ended_because == "fence_refused"


@virtual
async def test_an_awaited_fence_that_is_refused_ends_the_term() -> None:
    term, held, _ = a_term()
    with pytest.raises(LeaseLost):
        await term.fence(ASYNC)
    assert held.ended_because == "fence_refused"


class NoRows:
    rowcount = 0


@virtual
async def test_a_guarded_statement_that_changed_no_row_ends_the_term_if_the_store_says_that_it_is_over() -> None:
    term, held, _ = a_term()
    guard = term.guard()
    assert (guard.sql, guard.text, dict(guard.params)) == ("epoch = %(epoch)s", "epoch = :epoch", {"epoch": 1})
    guard.check(1)
    assert term.is_valid
    held.renew_now = lambda: held.end("held_by_another")
    with pytest.raises(LeaseLost):
        guard.check(NoRows())
    assert held.ended_because == "held_by_another"


@virtual
async def test_a_guarded_statement_that_changed_no_row_leaves_a_term_that_the_store_renews() -> None:
    term, held, _ = a_term()
    held.renew_now = lambda: held.renewed(held.lease, LoopClock().now_s())
    with pytest.raises(ConfigurationError) as caught:
        term.guard().check(NoRows())
    assert caught.value.code == "guard_matched_nothing"
    assert term.is_valid


@virtual
async def test_without_an_answer_of_the_store_a_guarded_statement_that_changed_no_row_is_uncertain() -> None:
    term, held, _ = a_term()
    with pytest.raises(Uncertain):
        term.guard().check(NoRows())
    assert term.is_valid
    guard = term.guard()
    await asyncio.sleep(9.5)
    with pytest.raises(LeaseLost):
        guard.check(NoRows())
    assert held.ended_because is not None


@virtual
async def test_a_refused_write_inside_the_body_ends_it_quietly() -> None:
    term, _, fences = a_term()
    fences.refusing = True
    async with term, term.transaction():
        pass
    assert not term.is_valid
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(1)


# What the body has fenced is spoiled when the body is cut short


@virtual
async def test_a_transaction_of_a_body_that_is_cut_short_is_spoiled() -> None:
    term, held, fences = a_term()
    fences.ours = ("conn",)
    async with term:
        term.fence(CONN)
        held.end("held_by_another")
        await for_ever()
    assert (fences.spoiled, held.ended_because) == (["conn"], "held_by_another")


@virtual
async def test_a_connection_that_was_refused_as_one_of_another_database_is_left_alone_at_the_end_of_the_term() -> None:
    term, held, fences = a_term()
    fences.elsewhere = ("conn", "async")
    async with term:
        with pytest.raises(ConfigurationError):
            term.fence(CONN)
        with pytest.raises(ConfigurationError):
            await term.fence(ASYNC)
        held.end("held_by_another")
        await for_ever()
    assert (fences.spoiled, held.ended_because) == ([], "held_by_another")


@virtual
async def test_a_transaction_that_was_fenced_before_is_spoiled_although_its_second_fence_was_refused() -> None:
    term, held, fences = a_term()
    fences.ours = ("conn",)
    async with term:
        term.fence(CONN)
        fences.elsewhere = ("conn",)
        with pytest.raises(ConfigurationError):
            term.fence(CONN)
        held.end("held_by_another")
        await for_ever()
    assert (fences.spoiled, held.ended_because) == (["conn"], "held_by_another")
