"""`fencehold outbox ls`, `show TRACKING_ID` and `stats`: a look at the events; none of them changes anything."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict

import click

from fencehold.cli import exit_codes
from fencehold.cli.outbox.options import StatusChoice, lease_option, outbox_option, tracking_ids, with_outbox
from fencehold.cli.outbox.words import (
    ReaperSeen,
    age_s,
    brief,
    error_raised,
    error_said,
    event_json,
    holder,
    is_live,
    pretty,
    tries,
    why,
)
from fencehold.cli.screen import clean, moment, put, span
from fencehold.cli.setup import Setup, with_setup
from fencehold.model.outbox.rules import Status
from fencehold.model.outbox.settings import OutboxSettings, outbox_flag, outbox_settings
from fencehold.ports.events import EventRow, Filter, Stats
from fencehold.runtime.outbox.outbox import FIND_MAX, Outbox

COLUMNS = ("TRACKING ID", "TYPE", "STATUS", "TRIES", "AGE", "NOW")
SPARE = ("AGE", "NOW")
#: For failed events the column NOW shows the reason, so a list of only these never leaves it out.
FAILURES = {Status.FAILED, Status.DEAD_LETTER}

LS_EPILOG = """\b
Examples:
  fencehold outbox ls --status FAILED --status DEAD_LETTER
  fencehold outbox ls --type order.created --limit 10 -o json

Exit codes: 0 done, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=LS_EPILOG)
@click.option(
    "--status", "statuses", multiple=True, type=StatusChoice(list(Status)),
    help="Only events in this status; may be given several times.  [all]",
)  # fmt: skip
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only events of these types.  [all]")
@click.option("--limit", type=click.IntRange(1, FIND_MAX), default=50, help=f"At most so many (to {FIND_MAX}).  [50]")
@outbox_option
@with_setup
def ls(setup: Setup, statuses: tuple[str, ...], types: tuple[str, ...], limit: int, outbox_name: str) -> None:
    """List events, the newest first: what they wait for, who holds them, why they failed.

    Without their payload: `fencehold outbox show` has it.
    """
    which = Filter(tuple(Status(s) for s in statuses), types)
    rows = with_outbox(setup, outbox_name, lambda outbox: outbox.find(which, limit))
    payload = {"events": [event_json(row, with_content=False) for row in rows]}
    none = "no such events" if statuses or types else f"no events in {outbox_name!r}"
    setup.screen.table(payload, COLUMNS, [_row(row) for row in rows], _spare(which), none)
    if len(rows) == limit:
        setup.screen.say(f"these are the newest {limit}; there may be more (--limit)")


def _spare(which: Filter) -> tuple[str, ...]:
    """Return the columns that may be left out on a narrow terminal, in the order in which they are left out."""
    if not which.statuses or set(which.statuses) - FAILURES:
        return SPARE
    return ("AGE", "TRIES", "STATUS") if len(set(which.statuses)) == 1 else ("AGE", "TRIES")


def _row(row: EventRow) -> list[str]:
    return [
        row.tracking_id, row.event_type, row.status.value, f"{tries(row)}/{row.max_retries}",
        span(age_s(row)), brief(row),
    ]  # fmt: skip


SHOW_EPILOG = """\b
Examples:
  fencehold outbox show 0198c5d2-7c1e-7cc3-9d5e-3f2b8a1c4e77
  fencehold outbox show 0198c5d2-7c1e-7cc3-9d5e-3f2b8a1c4e77 -o json \\
    | jq .event.payload

Exit codes: 0 done, 1 no such event, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=SHOW_EPILOG)
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


STATS_EPILOG = """\b
Examples:
  fencehold outbox stats
  fencehold outbox stats -o json | jq .stats.oldest_pending_age_s

Exit codes: 0 done, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=STATS_EPILOG)
@outbox_option
@lease_option
@with_setup
def stats(setup: Setup, outbox_name: str, lease: str) -> None:
    """Count the events by status; say how long the oldest waits, and when the reaper last ran.

    --lease is that of the workers; by it a reaper that has not run for long counts as missing.
    """
    settings = outbox_settings(lease=lease)
    found = with_outbox(setup, outbox_name, lambda outbox: outbox.stats())
    reaper = ReaperSeen.of(found, settings, outbox_name)
    payload = {"stats": {"outbox": outbox_name, **asdict(found), "reaper_missing": reaper.missing}}
    setup.screen.table(payload, ("WHAT", "VALUE"), _counts(found, reaper))


def _counts(found: Stats, reaper: ReaperSeen) -> list[tuple[str, str]]:
    ran = "never" if found.reaper_ran_s_ago is None else f"{span(found.reaper_ran_s_ago)} ago"
    return [
        ("PENDING", str(found.pending)),
        ("PROCESSING", str(found.processing)),
        ("COMPLETED", str(found.completed)),
        ("FAILED", str(found.failed)),
        ("DEAD_LETTER", str(found.dead_letter)),
        ("oldest due, not taken", span(found.oldest_pending_age_s)),
        ("lapsed, not recovered", str(found.lapsed)),
        ("reaper last ran", f"{ran} (MISSING)" if reaper.missing else ran),
        ("reaper runs", str(found.reaper_runs)),
    ]
