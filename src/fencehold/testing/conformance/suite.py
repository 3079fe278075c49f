"""Runs each test of the suite in an event loop of its own; opens the harness in it before, and closes it after."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from fencehold.model.election.leases import Ask, Lease, TermKey
from fencehold.ports.backend import Backend
from fencehold.ports.leases import Answer
from fencehold.testing.conformance.needs import needs
from fencehold.testing.harness import CALL_LIMIT_S, Can, Harness

# Far from the process's own time, so that a test fails if the two are compared.
START = dt.datetime(2031, 5, 17, 12, 0, 0, tzinfo=dt.UTC)
LEASE_S = 60.0
LEASE = dt.timedelta(seconds=LEASE_S)

AsyncTest = Callable[..., Coroutine[Any, Any, None]]


class HarnessTests:
    """Base of every class of tests; works with pytest alone, whatever plugins are there."""

    test_limit_s: ClassVar[float] = 55.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, in_own_loop(test))

    async def ready(self, harness: Harness) -> None:
        """Prepare a test, in its event loop: the namespace is empty, and its table of leases is made."""
        await harness.open()


@needs(Can.LEASES)
class LeaseTests(HarnessTests):
    """Base of the classes of tests for leases."""


def in_own_loop(test: AsyncTest) -> Callable[..., None]:
    @functools.wraps(test)
    def run(self: HarnessTests, harness: Harness, **given: Any) -> None:
        asyncio.run(_within(test, self, harness, given))

    return run


async def _within(test: AsyncTest, self: HarnessTests, harness: Harness, given: dict[str, Any]) -> None:
    async with asyncio.timeout(self.test_limit_s):
        try:
            await self.ready(harness)
            await test(self, harness, **given)
        finally:
            await harness.close()


def ask(name: str, holder: str, nonce: str = "", lease_s: float = LEASE_S) -> Ask:
    return Ask(name, holder, lease_s, nonce or f"nonce of {holder}")


def granted(answer: Answer) -> Lease:
    """Return the lease, or fail and show what came instead."""
    assert isinstance(answer, Lease), f"not granted: {answer}"
    return answer


async def take(backend: Backend, name: str, holder: str, nonce: str = "", lease_s: float = LEASE_S) -> TermKey:
    """Acquire the lease and return the key of the new term."""
    return granted(await backend.leases.acquire(ask(name, holder, nonce, lease_s), CALL_LIMIT_S)).key(lease_s)


async def renew(backend: Backend, key: TermKey) -> Answer:
    return (await backend.leases.renew([key], CALL_LIMIT_S))[0]


async def release(backend: Backend, key: TermKey) -> Answer:
    return (await backend.leases.release([key], CALL_LIMIT_S))[0]


async def row(backend: Backend, name: str) -> Lease:
    return (await backend.leases.read([name], CALL_LIMIT_S))[name]


def plenty() -> float:
    """A long remaining time of the term: so the local clock refuses nothing, only the store can."""
    return 3600.0
