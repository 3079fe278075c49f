"""Where a handler failed: in full in the log, its end in the row, and a password in neither."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

import fencehold
from fencehold.telemetry.logs import LogSink
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import becomes, running


def deep(depth: int) -> None:
    """Frames that differ in name, so that Python shows each of them."""
    if depth == 0:
        raise LookupError("no such mailbox")
    scope: dict[str, Any] = {"deep": deep}
    exec(f"def step_{depth}(): deep({depth - 1})", scope)
    scope[f"step_{depth}"]()


async def fails(event: fencehold.Claim) -> None:
    try:
        deep(0)
    except LookupError as error:
        raise ConnectionError("postgresql://me:hunter2@db/x is down") from error


def fails_on_a_thread(event: fencehold.Claim) -> None:
    deep(0)


async def fails_deep_down(event: fencehold.Claim) -> None:
    deep(60)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="fencehold")
    return caplog


async def failed(url: str, opened: Opened, handler: Any, **worker: Any) -> dict[str, Any]:
    """The row of an event that this handler failed; what was told went to the log too."""
    async with opened(url, retry_base="20s") as (outbox, heard):
        event = await outbox.add("a", 1)
        async with running(outbox.worker(handler, **worker)):
            found = await becomes(url, event, "FAILED")
        told = await heard.once("event_failed")
        LogSink().fact("event_failed", **told)
        return found


async def test_a_failed_handler_s_traceback_is_in_the_log_and_in_the_row(
    url: str, opened: Opened, log: pytest.LogCaptureFixture
) -> None:
    found = await failed(url, opened, fails)
    for text in (found["last_error"], log.text):
        assert "hunter2" not in text
        assert "Traceback (most recent call last):" in text
        for words in ("in deep", "in fails", "LookupError: no such mailbox", "the direct cause of"):
            assert words in text
        assert "handler_runs.py" not in text, "the worker's own frames are of no interest"
    assert found["last_error"].startswith("ConnectionError: postgresql://me:***@db/x is down\n\nTraceback (")
    below = log.records[-1].getMessage().splitlines()[1:]
    assert len(below) > 5
    assert all(line.startswith("  ") for line in below if line), "what an error says cannot pass for a line of the log"


async def test_it_is_there_for_a_handler_on_a_thread_too(
    file_url: str, opened: Opened, log: pytest.LogCaptureFixture
) -> None:
    found = await failed(file_url, opened, fails_on_a_thread)
    for text in (found["last_error"], log.text):
        assert re.search(r"Traceback \(most recent call last\):\n\s*File \"[^\"]*test_tracebacks.py\"", text)
        assert "in fails_on_a_thread" in text


async def test_in_the_row_it_is_bounded_and_ends_with_the_culprit_and_in_the_log_it_is_whole(
    url: str, opened: Opened, log: pytest.LogCaptureFixture
) -> None:
    found = await failed(url, opened, fails_deep_down)
    assert len(found["last_error"]) == 2000
    assert found["last_error"].startswith("LookupError: no such mailbox\n\nTraceback (its end):\n")
    assert found["last_error"].endswith('raise LookupError("no such mailbox")')
    assert "step_60" not in found["last_error"]
    assert "step_60" in log.text


async def test_of_a_handler_that_took_too_long_it_says_where_it_was(file_url: str, opened: Opened) -> None:
    import asyncio

    async def waits_for_ever(event: fencehold.Claim) -> None:
        await asyncio.Event().wait()

    found = await failed(file_url, opened, waits_for_ever, max_processing=1)
    assert found["last_error"].startswith("TimeoutError: aborted: the handler took longer than max_processing (1 s)\n")
    assert "in waits_for_ever" in found["last_error"]
    assert "await asyncio.Event().wait()" in found["last_error"]


async def test_an_error_given_to_fail_by_hand_keeps_its_traceback(file_url: str, opened: Opened) -> None:
    async with opened(file_url) as (outbox, _):
        event = await outbox.add("a", 1)
        (claim,) = await outbox.claim(1, "me")
        try:
            deep(1)
        except LookupError as error:
            await outbox.fail(claim, error)
        assert "in step_1" in (await becomes(file_url, event, "FAILED"))["last_error"]


async def test_an_error_that_was_never_raised_has_no_traceback(file_url: str, opened: Opened) -> None:
    async with opened(file_url) as (outbox, _):
        event = await outbox.add("a", 1)
        (claim,) = await outbox.claim(1, "me")
        await outbox.fail(claim, ValueError("no"))
        assert (await becomes(file_url, event, "FAILED"))["last_error"] == "ValueError: no"
