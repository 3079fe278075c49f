"""Handlers that hang under a worker without an event loop of its own: told, seen and given up there too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import fencehold
from fencehold import sync
from fencehold.sync.outbox import Outbox
from tests.fencehold.runtime.outbox.scene import LIMIT_S, ThreadGate, code_of


@contextmanager
def opened(url: str, **settings: Any) -> Iterator[Outbox]:
    with sync.connect(url) as store:
        outbox = store.outbox("outbox", **settings)
        store.init()
        yield outbox


def test_run_raises_once_all_places_are_taken_by_threads_that_hang(file_url: str) -> None:
    gate, told = ThreadGate(), list[tuple[fencehold.WorkerStuck, int]]()
    with opened(file_url, lease=0.5, max_retries=1) as outbox:
        outbox.add("a", 1)
        worker = outbox.worker(gate, concurrency=1, max_processing=0.5, give_up_after=0.3)
        assert worker.settings.give_up_after_s == 0.3
        worker.on_stuck = lambda error: told.append((error, worker.in_flight))
        try:
            with pytest.raises(fencehold.WorkerStuck, match="all its 1 places") as error:
                worker.run()
            assert told == [(error.value, 1)]
            assert gate.inside == 1, "a thread cannot be stopped"
        finally:
            gate.opened.set()


class Blocks:
    """An async handler that blocks the store's event loop until it is told to end: what the types advise against."""

    def __init__(self) -> None:
        self.began, self.over = threading.Event(), threading.Event()

    async def __call__(self, event: fencehold.Claim) -> None:
        self.began.set()
        assert self.over.wait(LIMIT_S), "nobody ended it"


def test_run_raises_while_an_async_handler_blocks_the_loop(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencehold.sync.outbox.STUCK_GRACE_S", 0.5)
    handle, by = Blocks(), list[str]()
    with opened(file_url, lease=2) as outbox:
        outbox.add("a", 1)
        worker = outbox.worker(handle, give_up_after="500ms", worker_id="w")  # type: ignore[arg-type]
        assert worker.worker_id == "w"
        worker.on_stuck = lambda _: by.append(threading.current_thread().name)
        try:
            with pytest.raises(fencehold.WorkerStuck, match=r"not turned for .* in the handler .*Blocks"):
                worker.run()
            assert by == ["fencehold-keeper"]
            assert not handle.over.is_set(), "it still blocks"
        finally:
            handle.over.set()


def test_a_probe_answers_as_the_async_one_does_and_not_at_all_while_the_loop_is_blocked(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencehold.sync.outbox.PROBE_GRACE_S", 0.1)
    handle = Blocks()
    with opened(file_url, lease=2) as outbox:
        worker = outbox.worker(handle)  # type: ignore[arg-type]
        with pytest.raises(fencehold.Unavailable) as error:
            worker.probe()
        assert code_of(error) == "starting"
        outbox.add("a", 1)
        runs = threading.Thread(target=worker.run)
        runs.start()
        try:
            assert handle.began.wait(LIMIT_S)
            with pytest.raises(fencehold.Unavailable) as error:
                worker.probe()
            assert code_of(error) == "loop_blocked"
            handle.over.set()
            worker.probe()
        finally:
            handle.over.set()
            worker.stop()
            runs.join(LIMIT_S)
