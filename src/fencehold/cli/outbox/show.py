"""`fencehold outbox show TRACKING_ID`: shows one event in full, and why it has its status."""

from __future__ import annotations

import datetime as dt

import click

from fencehold.cli import exit_codes
from fencehold.cli.outbox.options import lease_option, outbox_option, tracking_ids, with_outbox
from fencehold.cli.outbox.words import (
    ReaperSeen,
    error_raised,
    error_said,
    event_json,
    holder,
    is_live,
    pretty,
    tries,
    why,
)
from fencehold.cli.screen import clean, moment, put
from fencehold.cli.setup import Setup, with_setup
from fencehold.model.outbox.events import Status
from fencehold.model.outbox.settings import OutboxSettings, outbox_flag, outbox_settings
from fencehold.ports.events import EventRow, Filter
from fencehold.runtime.outbox.outbox import Outbox

EPILOG = """\b
Examples:
  fencehold outbox show 0198c5d2-7c1e-7cc3-9d5e-3f2b8a1c4e77
  fencehold outbox show 0198c5d2-7c1e-7cc3-9d5e-3f2b8a1c4e77 -o json \\
    | jq .event.payload

Exit codes: 0 done, 1 no such event, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=EPILOG)
@click.argument("tracking_id")
@outbox_option
@lease_option
@with_setup
def show(setup: Setup, tracking_id: str, outbox_name: str, lease: str) -> None:
    """Show everything about one event, its payload too, and say why it is where it is.

    --lease is that of the workers; by it a reaper that has not run for long counts as missing.
    """
    wanted = tracking_ids([tracking_id])[0]
    settings = outbox_settings(lease=lease)
    row, reaper = with_outbox(setup, outbox_name, lambda outbox: _read(outbox, wanted, settings))
    if row is None:
        raise exit_codes.Refused(
            f"There is no event {wanted} in outbox {outbox_name!r}.",
            hint="It was purged, or its transaction was never committed; "
            f"`fencehold outbox ls{outbox_flag(outbox_name)}` lists what there is.",
            code="no_such_event",
            exit_code=exit_codes.NO,
        )
    words = why(row, reaper)
    if setup.screen.is_json:
        setup.screen.result({"event": {**event_json(row, with_content=True), "why": clean(words)}}, "")
        return
    put(f"{row.status.value}: {clean(words)}\n")
    setup.screen.fields({}, _rows(row))
    if raised := error_raised(row):
        put(f"\n{clean(raised)}")
    for name, text in (("payload", row.payload), ("metadata", row.metadata)):
        if text is not None:
            put(f"\n{name}\n{clean(pretty(text))}")


async def _read(
    outbox: Outbox, tracking_id: str, settings: OutboxSettings
) -> tuple[EventRow | None, ReaperSeen | None]:
    rows = await outbox.find(Filter(tracking_ids=(tracking_id,)), 1)
    if not rows or rows[0].status is not Status.PROCESSING or is_live(rows[0]):
        return (rows[0] if rows else None), None
    return rows[0], ReaperSeen.of(await outbox.stats(whole=False), settings, outbox.name)


def _rows(row: EventRow) -> list[tuple[str, str]]:
    return [
        ("tracking id", row.tracking_id),
        ("type", row.event_type),
        ("status", row.status.value),
        ("tries", f"{tries(row)} of {row.max_retries}, {row.retry_count} failed"),
        ("aggregate", " ".join(filter(None, (row.aggregate_type, row.aggregate_id))) or "-"),
        ("priority", str(row.priority)),
        ("created", moment(row.created_at)),
        ("due", moment(row.due_at)),
        ("processed", _moment(row.processed_at)),
        ("worker", holder(row) if row.lock_token else "-"),
        ("lease token", row.lock_token or "-"),
        ("held until", _moment(row.locked_until)),
        ("last error", " ".join((error_said(row) or "-").split())),
        ("root cause", " ".join((row.root_cause or "-").split())),
        ("id", str(row.id)),
    ]


def _moment(when: dt.datetime | None) -> str:
    return moment(when) if when else "-"
