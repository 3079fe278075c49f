"""`fencehold items ...`: an operator's commands for items and their leases."""

from __future__ import annotations

from importlib import import_module

import click

from fencehold.cli.commands import Commands

IMPORTS = {
    "break": lambda: import_module("fencehold.cli.items.break_lease").break_,
    "ls": lambda: import_module("fencehold.cli.items.look").ls,
    "show": lambda: import_module("fencehold.cli.items.look").show,
}

EPILOG = """\b
Examples:
  export FENCEHOLD_DSN=postgresql://app@db/app
  fencehold items ls --kind negotiation --state REQUESTED
  fencehold items show n-7
  fencehold items break n-7

Exit codes: 0 done, 1 the answer is no, 69 database unreachable, 78 bad configuration, 130 interrupted
"""


@click.group(cls=Commands, imports=IMPORTS, epilog=EPILOG)
def items() -> None:
    """Look at items, at who holds them, and break a lease that nobody will give back."""
