"""`fencehold outbox redrive`: makes the dead letters of one type due again, so many a minute."""

from __future__ import annotations

import click

from fencehold.cli import exit_codes
from fencehold.cli.outbox.options import ALL_OR_NONE, dry_run_option, outbox_option, with_outbox
from fencehold.cli.screen import span
from fencehold.cli.setup import Setup, with_setup
from fencehold.runtime.outbox.outbox import REDRIVE_PER_MINUTE

LIMIT_MAX = 1_000_000

EPILOG = """\b
Examples:
  fencehold outbox redrive --type order.created \\
    --root-cause "broker was down, is up" --dry-run
  fencehold outbox redrive --type order.created \\
    --root-cause "broker was down, is up" --per-minute 600

Exit codes: 0 done (also when there were none), 69 database unreachable, 78 bad configuration, 130 interrupted
"""


@click.command(epilog=EPILOG)
@click.option("--type", "event_type", required=True, metavar="TYPE", help="Dead letters of this type, no others.")
@click.option("--root-cause", required=True, metavar="TEXT", help="What was wrong and is mended; stays with each.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=1000, help="At most so many, the oldest.  [1000]")
@click.option(
    "--per-minute", type=click.FloatRange(0, min_open=True), default=float(REDRIVE_PER_MINUTE),
    help=f"They become due one after the other, so many a minute.  [{REDRIVE_PER_MINUTE}]",
)  # fmt: skip
@dry_run_option
@outbox_option
@with_setup
def redrive(
    setup: Setup, event_type: str, root_cause: str, limit: int, per_minute: float, dry_run: bool, outbox_name: str
) -> int:
    """Make the dead letters of one type PENDING again, their count of tries reset, oldest first.

    All are changed by one statement; the k-th becomes due k / PER_MINUTE minutes from now, so that what was just mended
    is not overrun.
    """
    redriven = with_outbox(
        setup, outbox_name,
        lambda outbox: outbox.redrive(event_type, root_cause, limit, per_minute=per_minute, dry_run=dry_run),
        ALL_OR_NONE,
    )  # fmt: skip
    last_due_in_s = max(0, len(redriven) - 1) * 60.0 / per_minute
    payload = {
        "dry_run": dry_run, "event_type": event_type, "root_cause": root_cause, "per_minute": per_minute,
        "redriven": redriven, "last_due_in_s": round(last_due_in_s, 3),
    }  # fmt: skip
    setup.screen.result(payload, _words(len(redriven), event_type, last_due_in_s, dry_run))
    if len(redriven) == limit:
        setup.screen.say(f"that is the limit of {limit}: there may be more")
    return exit_codes.OK


def _words(count: int, event_type: str, last_due_in_s: float, dry_run: bool) -> str:
    if not count:
        return f"no dead letters of type {event_type!r}"
    letters = "1 dead letter" if count == 1 else f"{count} dead letters"
    are = "would be" if dry_run else "is" if count == 1 else "are"
    return f"{letters} of type {event_type!r} {are} PENDING again, the last due in {span(last_due_in_s)}"
