"""`fencehold outbox retry TRACKING_ID...` and `redrive`: events that failed are made due again.

`retry` takes single events, now; `redrive` takes the dead letters of one type, so many a minute.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from fencehold.cli import exit_codes
from fencehold.cli.outbox.options import ALL_OR_NONE, dry_run_option, outbox_option, tracking_ids, with_outbox
from fencehold.cli.screen import span
from fencehold.cli.setup import Setup, with_setup
from fencehold.model.outbox.rules import Status
from fencehold.ports.events import Filter
from fencehold.runtime.outbox.outbox import FIND_MAX, REDRIVE_PER_MINUTE, Outbox

RETRY_EPILOG = """\b
Examples:
  fencehold outbox retry 0198c5d2-7c1e-7cc3-9d5e-3f2b8a1c4e77 --dry-run
  fencehold outbox retry 0198c5d2-7c1e-7cc3-9d5e-3f2b8a1c4e77 \\
    --root-cause "address corrected"

Exit codes: 0 all of them, 1 some were left alone, 69 database unreachable, 78 bad configuration, 130 interrupted
"""

REASONS = {
    Status.PENDING: "it waits for a worker already",
    Status.PROCESSING: "a worker has it in hand",
    Status.COMPLETED: "it is done",
    Status.FAILED: "another session had it locked: try again",
    Status.DEAD_LETTER: "another session had it locked: try again",
}


@dataclass(frozen=True)
class LeftAlone:
    tracking_id: str
    status: Status | None

    @property
    def why(self) -> str:
        return REASONS[self.status] if self.status else "there is no such event"


@click.command(epilog=RETRY_EPILOG)
@click.argument("ids", metavar="TRACKING_ID...", nargs=-1, required=True)
@click.option("--root-cause", default="", metavar="TEXT", help="What was wrong; stored with each event.")
@dry_run_option
@outbox_option
@with_setup
def retry(setup: Setup, ids: tuple[str, ...], root_cause: str, dry_run: bool, outbox_name: str) -> int:
    """Make events that FAILED or are a DEAD_LETTER due now, their count of tries reset.

    Events that are pending, in hand or done are left alone, and named.
    """
    wanted = tracking_ids(ids)
    if len(wanted) > FIND_MAX:
        raise click.UsageError(f"At most {FIND_MAX} at once; `outbox redrive` takes a whole type.")
    retried, left = with_outbox(
        setup, outbox_name, lambda outbox: _retry(outbox, wanted, root_cause, dry_run), ALL_OR_NONE
    )
    payload = {
        "dry_run": dry_run, "retried": retried,
        "left_alone": [{"tracking_id": one.tracking_id, "status": one.status, "why": one.why} for one in left],
    }  # fmt: skip
    verb = "would be PENDING again" if dry_run else "is PENDING again"
    lines = [f"{one}: {verb}" for one in retried] + [f"{one.tracking_id}: left alone, {one.why}" for one in left]
    setup.screen.result(payload, "\n".join(lines))
    return exit_codes.NO if left else exit_codes.OK


async def _retry(
    outbox: Outbox, wanted: list[str], root_cause: str, dry_run: bool
) -> tuple[list[str], list[LeftAlone]]:
    changed = set(await outbox.retry(wanted, root_cause, dry_run=dry_run))
    others = [one for one in wanted if one not in changed]
    rows = await outbox.find(Filter(tracking_ids=tuple(others)), len(others)) if others else []
    statuses = {row.tracking_id: row.status for row in rows}
    return [one for one in wanted if one in changed], [LeftAlone(one, statuses.get(one)) for one in others]


LIMIT_MAX = 1_000_000

REDRIVE_EPILOG = """\b
Examples:
  fencehold outbox redrive --type order.created \\
    --root-cause "broker was down, is up" --dry-run
  fencehold outbox redrive --type order.created \\
    --root-cause "broker was down, is up" --per-minute 600

Exit codes: 0 done (also when there were none), 69 database unreachable, 78 bad configuration, 130 interrupted
"""


@click.command(epilog=REDRIVE_EPILOG)
@click.option("--type", "event_type", required=True, metavar="TYPE", help="Dead letters of this type, no others.")
@click.option(
    "--root-cause", required=True, metavar="TEXT", help="What was wrong and is mended now; stored with each event."
)
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=1000, help="At most this many, the oldest first.  [1000]"
)
@click.option(
    "--per-minute", type=click.FloatRange(0, min_open=True), default=float(REDRIVE_PER_MINUTE),
    help=f"How many become due a minute, one after the other.  [{REDRIVE_PER_MINUTE}]",
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
