"""Handlers that could not have done their work: refused when the worker is made, or failed when they return."""

import asyncio
import concurrent.futures
import functools
import gc
import warnings
from typing import Any

import pytest

import fencehold
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import becomes, code_of, row, running

SENT: list[Any] = []


def named(handler: Any) -> str:
    return str(getattr(handler, "__qualname__", type(handler).__name__))


async def send(event: Any) -> None:
    SENT.append(event)


async def forgets_await(event: fencehold.Claim) -> Any:
    return send(event)


async def forgets_await_in_a_list(event: Any) -> Any:
    return [send(event), send(event)]


async def leaves_a_task(event: fencehold.Claim) -> Any:
    return asyncio.ensure_future(asyncio.sleep(3600))


def leaves_work_in_a_queue(event: fencehold.Claim) -> Any:
    return concurrent.futures.Future()


async def leaves_work_on_a_thread(event: fencehold.Claim) -> Any:
    under_way: concurrent.futures.Future[None] = concurrent.futures.Future()
    under_way.set_running_or_notify_cancel()
    return [under_way]


class Lazy:
    """As some database clients answer: nothing is asked before somebody awaits it."""

    def __await__(self) -> Any:
        SENT.append("lazy")
        yield


async def forgets_a_lazy_call(event: fencehold.Claim) -> Any:
    return Lazy()


def returns_what_forgets_await(event: fencehold.Claim) -> Any:
    return forgets_await(event)


MISTAKES = {
    forgets_await: "without awaiting it, and nothing of it was run: write `await` before the call",
    forgets_await_in_a_list: "without awaiting it, and nothing of it was run",
    leaves_a_task: "which is cancelled: await it in the handler",
    leaves_work_in_a_queue: "which is cancelled: wait for its result() in the handler",
    leaves_work_on_a_thread: "which goes on, and cannot be cancelled: wait for its result() in the handler",
    forgets_a_lazy_call: "without awaiting it, and nothing of it was run",
    returns_what_forgets_await: "without awaiting it, and nothing of it was run",
}


@pytest.mark.parametrize("handler", MISTAKES, ids=lambda handler: handler.__name__)
async def test_a_handler_that_returns_what_it_should_have_awaited_has_failed(
    file_url: str, opened: Opened, handler: Any
) -> None:
    SENT.clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with opened(file_url, retry_base="20s") as (outbox, _):
            event = await outbox.add("a", 1)
            async with running(outbox.worker(handler)):
                error = (await becomes(file_url, event, "FAILED"))["last_error"]
        gc.collect()
    assert error.startswith("TypeError: the handler returned ")
    assert MISTAKES[handler] in error
    assert SENT == []
    assert [str(one.message) for one in warned if "never awaited" in str(one.message)] == []


async def test_it_is_the_same_on_every_database(url: str, opened: Opened) -> None:
    async with opened(url, retry_base="20s") as (outbox, _):
        event = await outbox.add("a", 1)
        async with running(outbox.worker(forgets_await)):
            assert "`await`" in (await becomes(url, event, "FAILED"))["last_error"]


async def test_the_same_of_a_batch_fails_every_event_of_it(file_url: str, opened: Opened) -> None:
    async def handle(batch: list[fencehold.Claim]) -> Any:
        return [send(event) for event in batch]

    async with opened(file_url, retry_base="20s") as (outbox, _):
        ids = await outbox.add_many([("a", 1), ("a", 2)])
        async with running(outbox.worker(handle, batch_size=2)):
            for tracking_id in ids:
                assert "without awaiting it" in (await becomes(file_url, tracking_id, "FAILED"))["last_error"]


async def test_a_task_that_has_ended_counts_by_how_it_ended(file_url: str, opened: Opened) -> None:
    async def broken() -> None:
        raise LookupError("no such mailbox")

    async def handle(event: fencehold.Claim) -> Any:
        task = asyncio.ensure_future(send(event) if event.event_type == "good" else broken())
        await asyncio.wait([task])
        return task

    async with opened(file_url, retry_base="20s") as (outbox, _):
        good, bad = await outbox.add_many([("good", 1), ("bad", 2)])
        async with running(outbox.worker(handle)):
            await becomes(file_url, good, "COMPLETED")
            assert (await becomes(file_url, bad, "FAILED"))["last_error"].startswith("LookupError: no such mailbox")


async def test_what_a_handler_returns_otherwise_does_not_matter(file_url: str, opened: Opened) -> None:
    async with opened(file_url) as (outbox, _):
        for answer in (True, 0, "text", [1, 2], {"a": 1}, object(), lambda: None, []):

            async def handle(event: fencehold.Claim, answer: object = answer) -> Any:
                return answer

            event = await outbox.add("a", 1)
            async with running(outbox.worker(handle)):
                await becomes(file_url, event, "COMPLETED")


# --- at construction ---


def takes_none() -> None: ...


async def takes_none_async() -> None: ...


def takes_two(event: Any, session: Any) -> None: ...


def takes_named(*, event: Any) -> None: ...


class Sender:
    def __call__(self) -> None: ...

    def no_parameter(self) -> None: ...

    @staticmethod
    def static() -> None: ...

    def good(self, event: Any) -> None: ...


class Good:
    def __call__(self, event: Any) -> None: ...


REFUSED: list[Any] = [
    takes_none, takes_none_async, takes_two, takes_named, lambda: None, Sender(), Sender().no_parameter, Sender.static,
    functools.partial(takes_none), functools.partial(takes_two, 1, 2), functools.partial(takes_two, session=1, event=2),
    Good, Sender.good,
]  # fmt: skip


@pytest.mark.parametrize("handler", REFUSED, ids=named)
async def test_a_handler_that_cannot_be_called_with_one_event_is_refused_when_the_worker_is_made(
    file_url: str, handler: Any
) -> None:
    outbox = fencehold.connect(file_url).outbox()
    for given, size in ((handler, None), ({"a": handler}, None), ({"*": handler}, None), (handler, 2)):
        with pytest.raises(fencehold.ConfigurationError, match="cannot be called with one argument") as error:
            outbox.worker(given, batch_size=size)
        assert code_of(error) == "bad_handler"
    with pytest.raises(fencehold.ConfigurationError, match="`item`") as error:
        fencehold.connect(file_url).items("kind").process("NEW", handler)
    assert code_of(error) == "bad_handler"


async def test_a_class_given_instead_of_an_object_is_named_so(file_url: str) -> None:
    with pytest.raises(fencehold.ConfigurationError, match=r"Give an object, Good\(\.\.\.\), not its class"):
        fencehold.connect(file_url).outbox().worker(Good)  # type: ignore[arg-type]


def decorated(handler: Any) -> Any:
    """Adds an argument to the call, as a decorator that brings a session does."""

    @functools.wraps(handler)
    def with_session(*args: Any) -> Any:
        return handler(*args, "session")

    return with_session


ACCEPTED: list[Any] = [
    print, int, len, Good(), Sender().good, functools.partial(takes_two, session=1), functools.partial(takes_two, 1),
    lambda *events: None, lambda event, more=1: None, lambda event, **more: None, decorated(takes_two), [].append,
    dict.fromkeys,
]  # fmt: skip


@pytest.mark.parametrize("handler", ACCEPTED, ids=named)
async def test_what_can_be_called_with_one_event_or_cannot_be_read_is_accepted(file_url: str, handler: Any) -> None:
    store = fencehold.connect(file_url)
    store.outbox().worker({"a": handler})
    store.items("kind").process("NEW", handler)


async def test_what_a_decorator_adds_to_the_call_is_none_of_ours(file_url: str, opened: Opened) -> None:
    seen = []

    def handle(event: fencehold.Claim, session: str) -> None:
        seen.append((event.payload, session))

    async with opened(file_url) as (outbox, _):
        event = await outbox.add("a", 7)
        async with running(outbox.worker(decorated(handle))):
            await becomes(file_url, event, "COMPLETED")
        assert (await row(file_url, event))["retry_count"] == 0
    assert seen == [(7, "session")]
