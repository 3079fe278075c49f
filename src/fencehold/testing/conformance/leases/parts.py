"""Tests of parts that not every store has, and of their absence.

A hint is a message of the store that a lease may have changed; hints come in order. A part that a store lacks is
refused with an error that has a code, before anything is sent. `listen` of a store that cannot notify returns False.
"""

from __future__ import annotations

import asyncio

import pytest

from fencehold.model.election.rules import TermKey
from fencehold.model.errors import LeaseLost
from fencehold.ports.backend import Backend, events_of, items_of
from fencehold.ports.wakeup import ACQUIRED, ASKED, RELEASED
from fencehold.testing.conformance.suite import LeaseTests, needs, plenty, refused_with, release, take, unless
from fencehold.testing.harness import CALL_LIMIT_S, ITEM_KIND, OUTBOX_TABLE, Can, Harness


async def hearing(backend: Backend) -> asyncio.Queue[tuple[str, str]]:
    """Listen for hints of changed leases, and return a queue of the hints that this client gets, in order.

    A hint is what happened and the name of the lease.
    """
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    backend.wakeup.on_hint(lambda what, name: heard.put_nowait((what, name)))
    assert await backend.wakeup.listen(CALL_LIMIT_S) is True
    return heard


@needs(Can.WAKEUPS)
class Wakeups(LeaseTests):
    async def test_others_hear_of_an_acquire_a_request_to_step_down_and_a_release(
        self, one: Backend, two: Backend
    ) -> None:
        heard = await hearing(two)
        key = await take(one, "a name with blanks", "ada")
        await one.leases.ask_step_down(key.name, key.epoch, CALL_LIMIT_S)
        await release(one, key)
        async with asyncio.timeout(CALL_LIMIT_S):
            assert [await heard.get() for _ in range(3)] == [
                (ACQUIRED, key.name),
                (ASKED, key.name),
                (RELEASED, key.name),
            ]

    async def test_a_client_that_listens_still_answers(self, backend: Backend) -> None:
        await backend.wakeup.listen(CALL_LIMIT_S)
        for turn in range(5):
            await release(backend, await take(backend, "job", "ada", nonce=f"turn {turn}"))


@unless(Can.WAKEUPS)
class Silence(LeaseTests):
    """Tests for a store that cannot notify of changed leases: `listen` returns False, and no hint comes."""

    async def test_listening_says_that_nothing_will_be_heard(self, one: Backend, two: Backend) -> None:
        heard: list[str] = []
        two.wakeup.on_hint(lambda what, name: heard.append(name))
        assert await two.wakeup.listen(CALL_LIMIT_S) is False
        await release(one, await take(one, "job", "ada"))
        assert await two.wakeup.listen(CALL_LIMIT_S) is False
        assert heard == []


class Absences(LeaseTests):
    """Tests that a part which the harness does not declare is really absent: its use raises an error with a code."""

    @unless(Can.FENCES)
    async def test_every_fence_is_refused_and_a_term_that_is_over_is_lost(self, backend: Backend, key: TermKey) -> None:
        fences = backend.fences
        for call in (
            lambda: fences.transaction(key, plenty),
            lambda: fences.transaction_sync(key, plenty),
            lambda: fences.fence(object(), key),
            lambda: fences.guard(key),
        ):
            with refused_with("no_transactions"):
                call()
        with pytest.raises(LeaseLost):
            await fences.fence(object(), key, over=True)

    @unless(Can.OUTBOX)
    async def test_an_outbox_is_refused(self, harness: Harness) -> None:
        with refused_with("no_outbox"):
            events_of(harness.make(), OUTBOX_TABLE)

    @unless(Can.ITEMS)
    async def test_items_are_refused(self, harness: Harness) -> None:
        with refused_with("no_items"):
            items_of(harness.make(), ITEM_KIND)
