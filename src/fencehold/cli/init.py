"""`fencehold init`: the tables."""

from __future__ import annotations

import click

from fencehold.cli.setup import Setup, finish, with_setup

EPILOG = """\b
Examples:
  FENCEHOLD_DSN=sqlite:///app.db fencehold init
  fencehold --table submission_manager_leases init -o json
\b
Exit codes: 0 done or up to date, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=EPILOG)
@with_setup
def init(setup: Setup) -> None:
    """Create or upgrade the tables: safe to repeat, safe in parallel.

    Says which steps were applied. Where only a database administrator may do this, use `fencehold sql init`.
    """
    applied = finish(_init(setup))
    payload = {"table": setup.table, "applied": applied, "up_to_date": not applied}
    done = f"{setup.table}: applied {', '.join(applied)}" if applied else f"{setup.table}: already up to date"
    setup.screen.result(payload, done)


async def _init(setup: Setup) -> list[str]:
    async with setup.store() as store:
        return await store.init()
