"""Handlers that are cancelled before their first step: nothing of them has run, and their events are accounted for."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from fencehold.runtime.outbox.handler_runs import HandlerRuns
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import Gate, eventually, rows, running


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`begin.before` and `begin.after` are called around the moment in which the tasks of handlers are made."""

    class Begin:
        def before(self, runs: HandlerRuns) -> None: ...
        def after(self, runs: HandlerRuns) -> None: ...

    hooks, real = Begin(), HandlerRuns.begin

    def begin(self: HandlerRuns) -> None:
        hooks.before(self)
        real(self)
        hooks.after(self)

    monkeypatch.setattr(HandlerRuns, "begin", begin)
    return hooks


@pytest.mark.parametrize("batch_size", [None, 5])
async def test_a_worker_cancelled_before_its_handlers_began_hands_all_events_back_at_once(
    url: str, opened: Opened, begin: Any, batch_size: Any
) -> None:
    async with opened(url) as (outbox, heard):
        gate = Gate()
        await outbox.add_many([("a", n) for n in range(10)])
        worker = outbox.worker(gate, batch_size=batch_size)
        run = asyncio.create_task(worker.run())
        begin.before = lambda _: run.cancel()
        began_s = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert gate.entered == []
        assert time.monotonic() - began_s < outbox.settings.call_limit_s, "it waited for what will never come"
        assert worker.in_flight == 0
        found = [(one["status"], one["retry_count"]) for one in await rows(url)]
        assert found == [("PENDING", 0)] * 10, "handed back: no try"
        assert heard.all("events_handed_back", count=10)


async def test_an_event_lost_before_its_handler_began_leaves_nothing_behind_that_seems_to_hang(
    url: str, opened: Opened, begin: Any
) -> None:
    def lose(runs: HandlerRuns) -> None:
        for claimed in list(runs.claimed_events.values()):
            claimed.end("lease_lost")
            runs.lose(claimed)
        begin.after = lambda _: None

    async with opened(url, lease="30s") as (outbox, heard):
        gate = Gate(is_open=True)
        await outbox.add_many([("a", n) for n in range(3)])
        begin.after = lose
        worker = outbox.worker(gate, concurrency=3)
        async with running(worker):
            await heard.once("event_lost", times=3, reason="lease_lost")
            assert gate.entered == []

            async def is_free() -> bool:
                return worker.in_flight == 0

            await eventually(is_free)
            await outbox.add_many([("b", n) for n in range(3)])
            await gate.has(3)
