"""`fencehold outbox ...`: an operator's commands for an outbox."""

from __future__ import annotations

from importlib import import_module

import click

from fencehold.cli.commands import Commands

IMPORTS = {
    "ls": lambda: import_module("fencehold.cli.outbox.look").ls,
    "purge": lambda: import_module("fencehold.cli.outbox.purge").purge,
    "redrive": lambda: import_module("fencehold.cli.outbox.again").redrive,
    "retry": lambda: import_module("fencehold.cli.outbox.again").retry,
    "show": lambda: import_module("fencehold.cli.outbox.look").show,
    "stats": lambda: import_module("fencehold.cli.outbox.look").stats,
}

EPILOG = """\b
Examples:
  export FENCEHOLD_DSN=postgresql://app@db/app
  fencehold outbox stats
  fencehold outbox ls --status DEAD_LETTER --type order.created
  fencehold outbox redrive --type order.created --root-cause "broken broker"

Exit codes: 0 done, 1 the answer is no, 69 database unreachable, 78 bad configuration, 130 interrupted
"""


@click.group(cls=Commands, imports=IMPORTS, epilog=EPILOG)
def outbox() -> None:
    """Look at the events of an outbox, try them again, and clear away what is done."""
