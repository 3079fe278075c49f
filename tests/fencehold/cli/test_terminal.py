"""What a person sees of leases, events and items on a terminal: ids in one piece, and tries as a person counts them."""

import asyncio
import os
import pty
import re
import subprocess
import sys

import pytest

import fencehold
from tests.fencehold.cli.cli_process import hold, prepare
from tests.fencehold.cli.outbox_scene import in_every_status, with_outbox

HOLDER = "submission-manager-7d9f8b6c4-x2x9q-1-5f0c9a3e"


@pytest.fixture
def url(sqlite_url: str) -> str:
    prepare(sqlite_url)
    return sqlite_url


def on_a_terminal(url: str, columns: int, *arguments: str) -> str:
    """What is on the screen, without colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "FENCEHOLD_DSN": url, "COLUMNS": str(columns), "TERM": "xterm"}
    command = [sys.executable, "-m", "fencehold", *arguments]
    subprocess.run(command, stdout=theirs, env=environment, timeout=30, check=True)
    seen = os.read(ours, 65536).decode()
    for end in (ours, theirs):
        os.close(end)
    return re.sub(r"\x1b\[[0-9;]*m", "", seen)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_tracking_id_can_be_copied_in_one_piece(url: str, columns: int) -> None:
    ids = set(in_every_status(url, error="ConnectionError: broker is down").values())
    seen = on_a_terminal(url, columns, "outbox", "ls")
    assert {one for one in ids if one in seen} == ids


@pytest.mark.parametrize("columns", [80, 120])
def test_a_holder_and_a_name_can_be_copied_in_one_piece(url: str, columns: int) -> None:
    async def lead() -> None:
        async with fencehold.connect(url) as store:
            assert await store.leases.acquire("reports/nightly-aggregation-of-all-tenants", HOLDER)
            items = store.items("negotiation", holder_id=HOLDER)
            await items.put(f"n-{HOLDER}", state="REQUESTED", document={})

    asyncio.run(lead())
    seen = on_a_terminal(url, columns, "ls")
    assert [one in seen for one in ("reports/nightly-aggregation-of-all-tenants", HOLDER)] == [True, True]
    assert f"n-{HOLDER}" in on_a_terminal(url, columns, "items", "ls")


def test_leases_of_usual_names_are_a_table_at_80_columns(url: str) -> None:
    hold(url, "nightly")
    assert "┃" in on_a_terminal(url, 80, "ls")


def test_show_has_a_line_for_each_field_at_80_columns(url: str) -> None:
    tracking_id = in_every_status(url, error="ConnectionError: " + "broker is down " * 9)["failed"]
    lines = on_a_terminal(url, 80, "outbox", "show", tracking_id).splitlines()
    assert f"tracking id  {tracking_id}" in lines
    assert not any(line.startswith(("FIELD", "VALUE")) for line in lines)


def test_events_are_one_line_each_at_80_columns(url: str) -> None:
    ids = in_every_status(url, error="ConnectionError: broker is down")
    lines = on_a_terminal(url, 80, "outbox", "ls").splitlines()
    assert len(lines) == len(ids) + 5
    assert lines[-1].strip() == "not shown at this width: AGE, NOW"


@pytest.mark.parametrize("status", ["DEAD_LETTER", "FAILED"])
@pytest.mark.parametrize("error", ["ConnectionError: broker is down", "OSError: /srv/" + "long" * 20])
def test_a_list_of_failures_says_why_at_80_columns(url: str, status: str, error: str) -> None:
    tracking_id = in_every_status(url, error=error)["rejected" if status == "DEAD_LETTER" else "failed"]
    seen = on_a_terminal(url, 80, "outbox", "ls", "--status", status)
    assert tracking_id in seen
    assert error.split(maxsplit=1)[0] in seen
    assert "NOW" in seen
    assert "not shown at this width: STATUS, TRIES, AGE" in seen or "not shown" not in seen


def test_an_event_completed_at_its_third_try_shows_three_tries(url: str, cli, cli_text) -> None:
    async def handled(outbox: fencehold.Outbox) -> str:
        def handle(event: fencehold.Event) -> None:
            if event.attempt < 3:
                raise ConnectionError("broker is down")
            worker.stop()

        worker = outbox.worker(handle, poll_every="20ms")
        tracking_id = await outbox.add("a", {})
        await worker.run()
        return tracking_id

    tracking_id = with_outbox(url, handled, retry_base="10ms", retry_cap="10ms", max_retries=5)
    [line] = [line for line in cli_text(url, "outbox", "ls").out.splitlines() if tracking_id in line]
    assert line.split()[2:4] == ["COMPLETED", "3/5"]
    event = cli(url, "outbox", "show", tracking_id).json["event"]
    assert (event["tries"], event["retry_count"]) == (3, 2)
    assert "3 of 5, 2 failed" in cli_text(url, "outbox", "show", tracking_id).out
