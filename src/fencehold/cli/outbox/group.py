"""`fencehold outbox ...`: an operator's commands for an outbox."""

from __future__ import annotations

import click

from fencehold.cli.outbox import ls as outbox_ls
from fencehold.cli.outbox import purge as outbox_purge
from fencehold.cli.outbox import redrive as outbox_redrive
from fencehold.cli.outbox import retry as outbox_retry
from fencehold.cli.outbox import show as outbox_show
from fencehold.cli.outbox import stats as outbox_stats

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
