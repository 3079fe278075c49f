"""`fencehold items ...`: an operator's commands for items and their leases."""

from __future__ import annotations

import click

from fencehold.cli.items import break_lease as items_break
from fencehold.cli.items import ls as items_ls
from fencehold.cli.items import show as items_show

EPILOG = """\b
Examples:
  export FENCEHOLD_DSN=postgresql://app@db/app
  fencehold items ls --kind negotiation --state REQUESTED
  fencehold items show n-7
  fencehold items break n-7

Exit codes: 0 done, 1 the answer is no, 69 database unreachable, 78 bad configuration, 130 interrupted
"""


@click.group(epilog=EPILOG)
def items() -> None:
    """Look at items, at who holds them, and break a lease that nobody will give back."""


for _command in (items_ls.ls, items_show.show, items_break.break_):
    items.add_command(_command)
