"""A call whose caller was cancelled goes on to its end, and nobody is bothered with what became of it."""

import asyncio
import gc
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import fencehold
from fencehold.backends.memory.items import MemoryItemPort
from fencehold.backends.memory.outbox.events import MemoryEventPort

Call = Callable[[Any, Any], Awaitable[Any]]
OF_ITEMS: dict[str, Call] = {
    "put": lambda items, item: items.put("n", state="A", document=2),
    "save": lambda items, item: item.save(document=2),
    "renew": lambda items, item: items.renew(item),
    "break_leases": lambda items, item: items.break_lease(item),
    "delete": lambda items, item: items.delete(item),
}
OF_OUTBOX: dict[str, tuple[str, Call]] = {
    "add": ("add", lambda outbox, claim: outbox.add("b", 1)),
    "claim": ("turn", lambda outbox, claim: outbox.claim(1, "me")),
    "complete": ("turn", lambda outbox, claim: outbox.complete([claim])),
}


async def complaints_about(
    call: Callable[[], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch, port: type, verb: str
) -> list[Any]:
    """What asyncio complains of, if the caller is cancelled while the port's verb waits for a store that then fails."""
    asked, go_on, failed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def fails(*_: Any) -> Any:
        asked.set()
        await go_on.wait()
        failed.set()
        raise fencehold.Unavailable("the store is gone")

    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with monkeypatch.context() as patched:
        patched.setattr(port, verb, fails)
        task = asyncio.ensure_future(call())
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        await failed.wait()
        await asyncio.sleep(0)
    del task
    gc.collect()
    return complaints


@pytest.mark.parametrize("verb", OF_ITEMS)
async def test_an_error_that_nobody_waits_for_is_not_logged_as_forgotten_by_items(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    async with fencehold.connect(f"memory://{uuid.uuid4().hex}") as store:
        items = store.items("kind", lease="60s")
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")
        assert await complaints_about(lambda: OF_ITEMS[verb](items, item), monkeypatch, MemoryItemPort, verb) == []


@pytest.mark.parametrize("name", OF_OUTBOX)
async def test_an_error_that_nobody_waits_for_is_not_logged_as_forgotten_by_an_outbox(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    verb, call = OF_OUTBOX[name]
    async with fencehold.connect(f"memory://{uuid.uuid4().hex}") as store:
        outbox = store.outbox(lease="60s")
        await outbox.add("a", 1)
        (claim,) = await outbox.claim(1, "me")
        assert await complaints_about(lambda: call(outbox, claim), monkeypatch, MemoryEventPort, verb) == []
