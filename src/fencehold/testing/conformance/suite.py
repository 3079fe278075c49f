"""Runs each test of the suite in an event loop of its own; opens the harness before the test, closes it after."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar, TypeVar

import pytest

from fencehold.model.election.rules import Ask, Lease, TermKey
from fencehold.model.errors import ConfigurationError
from fencehold.ports.backend import Backend
from fencehold.ports.leases import Answer
from fencehold.testing.harness import CALL_LIMIT_S, Caller, Can, Door, Harness

# Far from the process's own time, so that a test fails if the two are compared.
START = dt.datetime(2031, 5, 17, 12, 0, 0, tzinfo=dt.UTC)
LEASE_S = 60.0
LEASE = dt.timedelta(seconds=LEASE_S)

S = TypeVar("S")
AsyncTest = Callable[..., Coroutine[Any, Any, None]]
Supply = Callable[[Harness], Awaitable[object]]
SupplyForDoor = Callable[[Harness, Door], Awaitable[object]]


def needs(*abilities: Can) -> Callable[[S], S]:
    """Mark a class of tests, or one test: it applies only to a store that can do all of these.

    Subclasses inherit the mark.
    """
    return _marked("needs", abilities)


def unless(*abilities: Can) -> Callable[[S], S]:
    """Mark a class of tests, or one test: it applies only to a store that can do none of these."""
    return _marked("unless", abilities)


def proves(*rules: str) -> Callable[[S], S]:
    """Mark a class of tests, or one test: it proves these rules, and also the rules that its oracle applies.

    The rules of a table are written with the table's name ("fences live.fence.is_holder"), those of specification 001
    by their number ("RULE-020-001").
    """
    return _marked("proves", rules)


def why_not(subject: object, can: Collection[Can]) -> str:
    """Return the first reason why a class or test does not apply to a store with these abilities; empty: it applies."""
    missing = (f"needs {one.value}" for one in Can if one in getattr(subject, "needs", ()) and one not in can)
    present = (f"only without {one.value}" for one in Can if one in getattr(subject, "unless", ()) and one in can)
    return next(itertools.chain(missing, present), "")


def _marked(name: str, values: tuple[object, ...]) -> Callable[[S], S]:
    def mark(subject: S) -> S:
        setattr(subject, name, {*getattr(subject, name, ()), *values})
        return subject

    return mark


class HarnessTests:
    """Base of every class of tests; works with pytest alone, whatever plugins are there.

    A test is a coroutine. The values of its arguments come from pytest (`harness`, parameters, fixtures), but those
    named in `supplies` are made in the test's own event loop. A test with the argument `door` (one kind of connection)
    is run once with each kind that callers may use, and each run gets new values of what `supplies_for_door` names. If
    the test also has the argument `other` (a harness of another database), the connections are those to the other
    database.
    """

    test_limit_s: ClassVar[float] = 55.0
    supplies: ClassVar[Mapping[str, Supply]] = {}
    supplies_for_door: ClassVar[Mapping[str, SupplyForDoor]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, in_own_loop(test, cls.supplies, cls.supplies_for_door))

    async def ready(self, harness: Harness) -> None:
        """Prepare a test, in its event loop: make an empty namespace and its table of leases."""
        await harness.open()


def in_own_loop(
    test: AsyncTest, supplies: Mapping[str, Supply], for_door: Mapping[str, SupplyForDoor]
) -> Callable[..., None]:
    signature = inspect.signature(test)
    anew = {name: make for name, make in for_door.items() if {name, "door"} <= {*signature.parameters}}
    asked = {name: make for name, make in supplies.items() if name in signature.parameters and name not in anew}

    @functools.wraps(test)
    def run(self: HarnessTests, harness: Harness, **given: Any) -> None:
        asyncio.run(_within(test, self, harness, asked, anew, given))

    of_pytest = [one for name, one in signature.parameters.items() if name not in {*asked, *anew, "harness", "door"}]
    of_pytest.insert(1, inspect.Parameter("harness", inspect.Parameter.POSITIONAL_OR_KEYWORD))
    setattr(run, "__signature__", signature.replace(parameters=of_pytest))  # noqa: B010 - it is no attribute for mypy
    return run


async def _within(
    test: AsyncTest, self: HarnessTests, harness: Harness, asked: Mapping[str, Supply],
    anew: Mapping[str, SupplyForDoor], given: dict[str, Any],
) -> None:  # fmt: skip
    wanted = inspect.signature(test).parameters
    async with asyncio.timeout(self.test_limit_s):
        try:
            await self.ready(harness)
            given |= {name: await make(harness) for name, make in asked.items()}
            given |= {"harness": harness} if "harness" in wanted else {}
            if "door" not in wanted:
                await test(self, **given)
                return
            doors = given.get("other", harness).sql.doors()
            assert doors, "the harness declares SQL, and gives no kind of connection"
            for door in doors:
                with noted(f"with {door.title}"):
                    given |= {name: await make(harness, door) for name, make in anew.items()}
                    await test(self, **given, door=door)
        finally:
            await harness.close()


class WithoutLeases(HarnessTests):
    """Base of the classes of tests for outboxes and items: the namespace is empty, without tables of leases."""

    async def ready(self, harness: Harness) -> None:
        await harness.prepare()


async def client_at_start(harness: Harness) -> Backend:
    """Return one more client of the harness, and stop the store's clock at START."""
    await harness.set_clock(START)
    return await harness.client()


async def held_by_ada(harness: Harness) -> TermKey:
    """Return the key of the lease "job" in its first term, which began at START and was granted to a new client."""
    return await take(await client_at_start(harness), "job", "ada")


@needs(Can.LEASES)
class LeaseTests(HarnessTests):
    """Base of the classes of tests for leases."""

    supplies: ClassVar[Mapping[str, Supply]] = {
        **dict.fromkeys(("backend", "one", "two"), client_at_start),
        "key": held_by_ada,
        "other": Harness.another,
    }


def ask(name: str, holder: str, nonce: str = "", lease_s: float = LEASE_S) -> Ask:
    return Ask(name, holder, lease_s, nonce or f"nonce of {holder}")


@contextmanager
def refused_with(code: str, hint: str = "") -> Iterator[None]:
    """Check that the block raises a ConfigurationError with this code, and that its hint contains `hint`."""
    with pytest.raises(ConfigurationError) as caught:
        yield
    assert caught.value.code == code
    assert hint in caught.value.hint


async def refused_without_tables(calls: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Check that each call raises a ConfigurationError `schema_missing`, whose hint says how to make the tables."""
    for call in calls:
        with refused_with("schema_missing", hint="init"):
            await call()


def granted(answer: Answer) -> Lease:
    """Return the lease if the answer is a grant; else fail and show the answer."""
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
    """Return an hour as the remaining time of a term: so the local clock refuses nothing, only the store can."""
    return 3600.0


@contextmanager
def noted(note: str) -> Iterator[None]:
    """Add the note to any error that the block raises."""
    try:
        yield
    except BaseException as error:
        error.add_note(note)
        raise


@asynccontextmanager
async def begun(door: Door) -> AsyncIterator[Caller]:
    """Open a connection of this kind, begin a transaction on it, and give it to the block."""
    async with door.open() as caller:
        await caller.begin()
        yield caller
