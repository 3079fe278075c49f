"""`fencehold outbox ls`: lists events, the newest first."""

from __future__ import annotations

import click

from fencehold.cli.outbox.options import StatusChoice, outbox_option, with_outbox
from fencehold.cli.outbox.words import age_s, brief, event_json, tries
from fencehold.cli.screen import span
from fencehold.cli.setup import Setup, with_setup
from fencehold.model.outbox.events import Status
from fencehold.ports.events import EventRow, Filter
from fencehold.runtime.outbox.outbox import FIND_MAX

COLUMNS = ("TRACKING ID", "TYPE", "STATUS", "TRIES", "AGE", "NOW")
SPARE = ("AGE", "NOW")
#: For failed events the column NOW shows the reason, so a list of only these never leaves it out.
FAILURES = {Status.FAILED, Status.DEAD_LETTER}

EPILOG = """\b
Examples:
  fencehold outbox ls --status FAILED --status DEAD_LETTER
  fencehold outbox ls --type order.created --limit 10 -o json

Exit codes: 0 done, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=EPILOG)
@click.option(
    "--status", "statuses", multiple=True, type=StatusChoice(list(Status)),
    help="Only these; may be given several times.  [all]",
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
    """The columns that may be left out on a narrow terminal, in this order."""
    if not which.statuses or set(which.statuses) - FAILURES:
        return SPARE
    return ("AGE", "TRIES", "STATUS") if len(set(which.statuses)) == 1 else ("AGE", "TRIES")


def _row(row: EventRow) -> list[str]:
    return [
        row.tracking_id, row.event_type, row.status.value, f"{tries(row)}/{row.max_retries}",
        span(age_s(row)), brief(row),
    ]  # fmt: skip
