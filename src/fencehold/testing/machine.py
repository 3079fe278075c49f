"""Random walks by hypothesis over a real backend: leases and fences must obey the rule table for calls in any order.

    def test_my_backend_obeys_the_table():
        check(MyHarness())

Every example has leases of its own in one namespace, so nothing has to be emptied in between. Any token and any request
that was ever made may be used late. The clock is the harness's, and is often set exactly to a lease's end.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.pair import LeasePair, Oracle
from fencehold.testing.conformance.leases.walk import Walker
from fencehold.testing.harness import Harness

EXAMPLES = 30
STEPS = 100
CLIENTS = 3


def check(
    harness: Harness,
    *,
    examples: int = EXAMPLES,
    steps: int = STEPS,
    prepare: Callable[[Backend], None] = lambda backend: None,
    shrink: bool = True,
) -> None:
    """Check that the backend obeys the rule table in random walks, that is, sequences of random calls.

    If it does not, raises AssertionError and shows the last calls of a walk that fails, as short a walk as was found.
    `prepare` is called with every client before its first use: there a test can plant a fault.
    """
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    chosen = settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, phases=phases,
        suppress_health_check=list(HealthCheck), print_blob=False, report_multiple_bugs=False,
    )  # fmt: skip
    numbers = itertools.count()

    async def opened() -> list[Backend]:
        await harness.open()
        clients = [await harness.client() for _ in range(CLIENTS)]
        for client in clients:
            prepare(client)
        return clients

    async def walk(rng: Random) -> None:
        pair = LeasePair(harness, clients, Oracle)
        await pair.set_clock(pair.now)
        await Walker(pair, f"{next(numbers)} ", rng).walk(steps)

    with asyncio.Runner() as runner:
        try:
            clients = runner.run(opened())
            chosen(given(st.randoms(use_true_random=False))(lambda rng: runner.run(walk(rng))))()
        finally:
            runner.run(harness.close())
