"""`fencehold outbox stats`: counts the events by status, and shows whether they are being handled."""

from __future__ import annotations

from dataclasses import asdict

import click

from fencehold.cli.outbox.options import lease_option, outbox_option, with_outbox
from fencehold.cli.outbox.words import ReaperSeen
from fencehold.cli.screen import span
from fencehold.cli.setup import Setup, with_setup
from fencehold.model.outbox.settings import outbox_settings
from fencehold.ports.events import Stats

EPILOG = """\b
Examples:
  fencehold outbox stats
  fencehold outbox stats -o json | jq .stats.oldest_pending_age_s

Exit codes: 0 done, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=EPILOG)
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
    setup.screen.table(payload, ("WHAT", "VALUE"), _rows(found, reaper))


def _rows(found: Stats, reaper: ReaperSeen) -> list[tuple[str, str]]:
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
