"""`fencehold outbox retry TRACKING_ID...`: makes these events due again now."""

from __future__ import annotations

from dataclasses import dataclass

import click

from fencehold.cli import exit_codes
from fencehold.cli.outbox.options import ALL_OR_NONE, dry_run_option, outbox_option, tracking_ids, with_outbox
from fencehold.cli.setup import Setup, with_setup
from fencehold.model.outbox.events import Status
from fencehold.ports.events import Filter
from fencehold.runtime.outbox.outbox import FIND_MAX, Outbox

EPILOG = """\b
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


@click.command(epilog=EPILOG)
@click.argument("ids", metavar="TRACKING_ID...", nargs=-1, required=True)
@click.option("--root-cause", default="", metavar="TEXT", help="What was wrong; it stays with each event.")
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
