"""Outputs on the pages that no block of the page prints: they are what the code makes of such an event, error or probe.

Other outputs have their tests named in their markers; those right below a block are compared when that is run.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import re
from dataclasses import asdict, replace
from typing import Any

import pytest

from fencehold.cli.outbox.words import ReaperSeen, event_json, why
from fencehold.cli.screen import Screen
from fencehold.cli.worker.health import Health
from fencehold.model.errors import LeaseLost
from fencehold.model.outbox.rules import Status
from fencehold.ports.events import EventRow
from fencehold.runtime.handlers.error_text import TRACEBACK_MARK
from tests.docs.blocks import the_block
from tests.fencehold.runtime.election.faces import until

PAGE = "docs/commands.md"
NIGHT = dt.datetime(2026, 1, 31, 2, tzinfo=dt.UTC)
DOWN = "ConnectionError: broker is down"
WORKER = "web1-812-5f0c9a3e"
FAILED = EventRow(
    7, "0198c5d2-7c1e-7cc3-9d5e-3f2b8a1c4e77", "order.created", "42", "order", '{"order": 42}', None, Status.FAILED, 0,
    NIGHT + dt.timedelta(milliseconds=12), NIGHT + dt.timedelta(seconds=9, milliseconds=12), None, 2, 5, None, None,
    DOWN, None, 3.2, None,
)  # fmt: skip
HELD = replace(
    FAILED, status=Status.PROCESSING, retry_count=0, last_error=None, lock_token=f"{WORKER}/1",
    locked_until=NIGHT + dt.timedelta(seconds=30, milliseconds=12), held_s=21.4,
)  # fmt: skip
DEAD = replace(
    FAILED, status=Status.DEAD_LETTER, retry_count=5, processed_at=NIGHT + dt.timedelta(seconds=62, milliseconds=412)
)
ROWS = [FAILED, replace(FAILED, waits_s=-1.0), HELD, replace(HELD, held_s=-12.0), DEAD]


def shown(part: str) -> Any:
    return json.loads(the_block(PAGE, part).text)


def test_the_sentences_of_the_page_are_those_of_such_events() -> None:
    page = re.sub(r"\n +", " ", the_block(PAGE, "waiting for the reaper").text)
    reaper = ReaperSeen(3.0, missing=False, outbox="outbox")
    assert page.splitlines() == [f"{row.status.value}: {why(row, reaper)}" for row in ROWS]


def test_the_event_of_the_page_is_such_an_event() -> None:
    example = shown('"traceback"')["event"]
    row = replace(
        FAILED, last_error=f"{DOWN}{TRACEBACK_MARK}{example['traceback'].partition(TRACEBACK_MARK.lstrip())[2]}"
    )
    assert example == {**event_json(row, with_content=True), "why": why(row)}
    assert shown('"events"') == {"events": [event_json(FAILED, with_content=False)]}


def test_the_error_of_a_lost_lease_has_the_fields_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    example = shown('"ended_by"')
    said = example["error"]
    error = LeaseLost(said["message"], hint=said["hint"], name="nightly", epoch=7)
    Screen("json").error(error, ended_by=said["ended_by"])
    assert json.loads(capsys.readouterr().err) == example


async def test_a_probe_while_the_database_hangs_says_what_the_page_shows() -> None:
    now_s = 100.0
    health = Health(now_s=lambda: now_s)
    async with health.watched(asyncio.Event().wait):
        await asyncio.sleep(0)
        now_s += 7.0
        await until(lambda: health.ready()[0].code != "loop_blocked")  # the loop turns twice a second
        assert shown('"failing"')["problems"] == [asdict(one) for one in health.ready()]
