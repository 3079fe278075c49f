"""`fencehold outbox ...`: what an operator asks of an outbox, and does to it."""

from __future__ import annotations

import click

from fencehold.cli import outbox_ls, outbox_purge, outbox_redrive, outbox_retry, outbox_show, outbox_stats

EPILOG = """\b
Examples:
  export FENCEHOLD_DSN=postgresql://app@db/app
  fencehold outbox stats
  fencehold outbox ls --status DEAD_LETTER --type order.created
  fencehold outbox redrive --type order.created --root-cause "broken broker"

Exit codes: 0 done, 1 the answer is no, 69 database unreachable, 78 bad configuration, 130 interrupted
"""


@click.group(epilog=EPILOG)
def outbox() -> None:
    """Look at the events of an outbox, try them again, and clear away what is done."""


for _command in (
    outbox_ls.ls, outbox_show.show, outbox_retry.retry, outbox_redrive.redrive, outbox_purge.purge, outbox_stats.stats,
):  # fmt: skip
    outbox.add_command(_command)
