"""A call whose caller was cancelled goes on to its end, and nobody is bothered with what became of it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import fencehold
from fencehold.backends.memory.outbox.events import MemoryEventPort
from tests.fencehold.runtime.abandoned import complaints_about
from tests.fencehold.runtime.outbox.conftest import Opened

CALLS: dict[str, tuple[str, Callable[[fencehold.Outbox, fencehold.Claim], Awaitable[Any]]]] = {
    "add": ("add", lambda outbox, claim: outbox.add("b", 1)),
    "claim": ("turn", lambda outbox, claim: outbox.claim(1, "me")),
    "complete": ("turn", lambda outbox, claim: outbox.complete([claim])),
}


@pytest.mark.parametrize("name", CALLS)
async def test_the_error_of_a_call_that_nobody_waits_for_is_not_logged_as_forgotten(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    verb, call = CALLS[name]
    async with opened("memory://", lease="60s") as (outbox, _):
        await outbox.add("a", 1)
        (claim,) = await outbox.claim(1, "me")
        assert await complaints_about(lambda: call(outbox, claim), monkeypatch, MemoryEventPort, verb) == []
