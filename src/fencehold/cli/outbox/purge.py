"""`fencehold outbox purge`: deletes finished events that are old."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fencehold.cli import exit_codes
from fencehold.cli.outbox.options import StatusChoice, dry_run_option, outbox_option, with_outbox
from fencehold.cli.screen import span
from fencehold.cli.setup import Setup, with_setup
from fencehold.model.durations import aged_seconds
from fencehold.model.errors import ConfigurationError
from fencehold.model.outbox.rules import Status
from fencehold.runtime.outbox.outbox import Outbox

FINISHED = (Status.COMPLETED, Status.DEAD_LETTER)
DEAD_LETTERS_KEPT_S = 90 * 86_400.0

EPILOG = """\b
Examples:
  fencehold outbox purge --older-than 30d --dry-run
  fencehold outbox purge --older-than 30d
  fencehold outbox purge --older-than 180d --status DEAD_LETTER

Exit codes: 0 done, 69 database unreachable, 78 bad configuration, 130 interrupted (what was deleted stays deleted)
"""


class Tally:
    """Counts the deleted events. As a text it is what to print when the purge is interrupted."""

    def __init__(self) -> None:
        self.deleted = 0
        self.on_progress: Callable[[int], None] = lambda _: None

    def told(self, deleted: int) -> None:
        self.deleted = deleted
        self.on_progress(deleted)

    def __str__(self) -> str:
        return f"interrupted: {self.deleted} were deleted for sure, a last batch perhaps; the rest stays"


@click.command(epilog=EPILOG)
@click.option(
    "--older-than", required=True, metavar="DURATION", help="Finished longer ago than this: 30d, 12h. A unit is needed."
)
@click.option(
    "--status", "statuses", multiple=True, type=StatusChoice(FINISHED),
    help="May be given several times.  [COMPLETED]",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Also delete dead letters younger than 90 days.")
@dry_run_option
@outbox_option
@with_setup
def purge(
    setup: Setup, older_than: str, statuses: tuple[str, ...], force: bool, dry_run: bool, outbox_name: str
) -> int:
    """Delete finished events, in batches, while workers go on. Unfinished events are never deleted."""
    age_s = aged_seconds(older_than, "--older-than")
    wanted = tuple(Status(s) for s in statuses) or (Status.COMPLETED,)
    if Status.DEAD_LETTER in wanted and age_s < DEAD_LETTERS_KEPT_S and not force:
        raise ConfigurationError(
            f"Dead letters are kept for 90 days; --older-than is {span(age_s)}.",
            hint="They are all that is left of what failed. Redrive them, or give --force.",
            code="too_young",
        )
    tally = Tally()
    deleted = with_outbox(
        setup, outbox_name, lambda outbox: _purge(setup, outbox, age_s, wanted, dry_run, tally),
        tally,
    )  # fmt: skip
    which = " and ".join(status.value for status in wanted)
    payload = {"dry_run": dry_run, "statuses": list(wanted), "older_than_s": age_s, "deleted": deleted}
    verb = "would be deleted" if dry_run else "deleted"
    setup.screen.result(payload, f"{deleted} {which} events older than {span(age_s)} {verb}")
    return exit_codes.OK


async def _purge(
    setup: Setup, outbox: Outbox, age_s: float, statuses: tuple[Status, ...], dry_run: bool, tally: Tally
) -> int:
    if dry_run:
        return await outbox.purge(age_s, statuses=statuses, dry_run=True)
    if setup.screen.is_json or not sys.stderr.isatty():
        return await outbox.purge(age_s, statuses=statuses, on_progress=tally.told)
    total = await outbox.purge(age_s, statuses=statuses, dry_run=True)
    with _bar(total) as tally.on_progress:
        return await outbox.purge(age_s, statuses=statuses, on_progress=tally.told)


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("deleting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("deleting", total=total)
        yield lambda deleted: progress.update(task, completed=deleted)
