"""The fenced transaction of programs without an event loop keeps the same promises."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress

from fencehold.model.election.leases import TermKey
from fencehold.model.errors import FenceholdError
from fencehold.ports.backend import Backend
from fencehold.ports.fence import RemainingS
from fencehold.testing.conformance.leases.fences import FencedTransactions, Step, fenced
from fencehold.testing.conformance.suite import needs, plenty
from fencehold.testing.harness import ADD_NOTE, CALL_LIMIT_S, Can, Harness


async def in_thread(
    harness: Harness, backend: Backend, key: TermKey, *steps: Step, remaining_s: RemainingS = plenty
) -> None:
    """Run the transaction in a thread, as a program without an event loop does."""
    loop = asyncio.get_running_loop()

    def run() -> None:
        with backend.fences.transaction_sync(key, remaining_s) as tx:
            for step in steps:
                match step:
                    case int():
                        tx.execute(ADD_NOTE.format(note=step))
                    case str():
                        with suppress(harness.sql.error):
                            tx.execute(step)
                    case _:
                        meanwhile = step()
                        if inspect.iscoroutine(meanwhile):
                            asyncio.run_coroutine_threadsafe(meanwhile, loop).result(CALL_LIMIT_S)

    await asyncio.to_thread(run)


@needs(Can.SQL)
class SyncFences(FencedTransactions):
    fenced = staticmethod(in_thread)

    async def test_an_obstructed_store_is_told_in_the_library_s_own_words(
        self, harness: Harness, one: Backend, two: Backend, key: TermKey
    ) -> None:
        """Another transaction blocks this one: that is our error. Only the caller's statements raise the driver's."""

        async def blocked() -> None:
            with suppress(FenceholdError):
                await in_thread(harness, two, key, 2, remaining_s=lambda: 0.2)

        await fenced(harness, one, key, 1, blocked)
        assert set(await harness.written()) <= {1, 2}
