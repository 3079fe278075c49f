"""What the harness does not declare is really absent: the backend refuses it with a code, before anything is sent."""

from __future__ import annotations

import pytest

from fencehold.model.election.leases import TermKey
from fencehold.model.errors import LeaseLost
from fencehold.ports.backend import Backend, events_of, items_of
from fencehold.testing.conformance.suite import LeaseTests, plenty, refused_with, unless
from fencehold.testing.harness import ITEM_KIND, OUTBOX_TABLE, Can, Harness


class Absences(LeaseTests):
    """For a store that lacks a part: a program is told so, and no class of tests is left out by mistake."""

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
