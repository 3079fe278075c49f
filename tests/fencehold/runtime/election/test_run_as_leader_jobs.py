"""What `store.run_as_leader` takes for a job, and what it refuses before anything is sent."""

import functools
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest

import fencehold
from fencehold import ConfigurationError, Term
from tests.fencehold.runtime.election.leader_job_parts import Told, is_held


def plain(term: Term) -> None:
    raise AssertionError("never called")


async def takes_nothing() -> None:
    raise AssertionError("never called")


async def yields(term: Term) -> Any:
    yield term


BAD = [None, "job", plain, lambda term: term, functools.partial(plain), takes_nothing, yields, Term]


@pytest.mark.parametrize("job", BAD, ids=repr)
async def test_what_is_no_async_function_of_one_argument_is_refused_before_anything_is_sent(job: Any) -> None:
    async with fencehold.connect("memory://bad-job") as store:
        with pytest.raises(ConfigurationError) as raised:
            await store.run_as_leader("x", job)
        assert raised.value.code == "bad_job"
        assert "async def job(term)" in raised.value.hint
        assert await store.leases.list() == []


class Methods:
    async def method(self, term: Term, more: int = 0) -> str:
        return "done"

    async def __call__(self, term: Term) -> str:
        return "done"


def decorated(job: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(job)
    def wrapper(*args: Any) -> Any:
        return job(*args)

    return wrapper


GOOD = [
    Methods().method, Methods(), functools.partial(Methods().method, more=1), decorated(Methods().method),
    AsyncMock(return_value="done"),
]  # fmt: skip


@pytest.mark.parametrize("job", GOOD, ids=["method", "object", "partial", "decorated", "mock"])
async def test_every_kind_of_async_callable_is_a_job(job: Any) -> None:
    async with fencehold.connect("memory://good-job") as store:
        assert await store.run_as_leader("x", job) == "done"


async def test_an_object_that_turns_out_not_to_be_async_is_not_tried_again() -> None:
    class Plain:
        def __call__(self, term: Term) -> int:
            return 5

    async with fencehold.connect("memory://plain-object", facts=(told := Told())) as store:
        with pytest.raises(ConfigurationError) as raised:
            await store.run_as_leader("x", Plain())  # type: ignore[arg-type]
        assert raised.value.code == "bad_job"
        assert not await is_held(store)
    assert len(told.of("leader_job_gave_up")) == 1


async def test_a_closed_store_runs_nothing() -> None:
    with pytest.raises(ConfigurationError) as raised:
        await fencehold.connect("memory://closed").run_as_leader("x", AsyncMock())
    assert raised.value.code == "store_closed"
