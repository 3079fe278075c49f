"""`fencehold init`: creates and upgrades the tables."""

from __future__ import annotations

import os
from typing import Any

import click

from fencehold.cli.outbox.options import items_option, outboxes_option
from fencehold.cli.screen import Screen
from fencehold.cli.setup import Setup, finish, with_setup
from fencehold.connect import scheme, sqlite_file
from fencehold.model.errors import ConfigurationError
from fencehold.ports.checkup import TablesMade
from fencehold.runtime.store import Store

EPILOG = """\b
Examples:
  FENCEHOLD_DSN=sqlite:///app.db fencehold init
  fencehold init --outbox orders --outbox billing --items
  fencehold --table submission_manager_leases init -o json

Exit codes: 0 done or up to date, 69 database unreachable, 78 bad configuration
"""


class Heard:
    """A sink for facts that prints at once what `init` waits for."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def fact(self, event: str, **fields: Any) -> None:
        if event == "schema_waiting":
            self._screen.say(f"waiting: {fields['detail']}")


@click.command(epilog=EPILOG)
@outboxes_option("those that are there already")
@items_option
@with_setup
def init(setup: Setup, outbox_names: tuple[str, ...], with_items: bool) -> None:
    """Create the tables of leases and, with --outbox and --items, of outboxes and items; upgrade existing ones.

    Safe to repeat, safe in parallel. Says which steps were applied, and on SQLite in which file. Where only a database
    administrator may do this, use `fencehold sql init`.
    """
    file = sqlite_file(setup.dsn) if scheme(setup.dsn) == "sqlite" else None
    is_new = file is not None and not os.path.exists(file)
    store = setup.store(Heard(setup.screen))
    for name in dict.fromkeys(outbox_names):
        store.outbox(name)
    applied, there = finish(setup, store, _init(store, set(outbox_names), with_items))
    outboxes = [*dict.fromkeys((*outbox_names, *there.outboxes))]
    payload = {
        "table": setup.table, "outboxes": outboxes, "items": there.has_items, "applied": applied,
        "up_to_date": not applied, "file": file, "file_made": is_new,
    }  # fmt: skip
    tables = ", ".join([setup.table, *outboxes, *(["items"] if there.has_items else [])])
    where = f" in {file}{' (a new file)' if is_new else ''}" if file else ""
    done = f"applied {', '.join(applied)}" if applied else "already up to date"
    setup.screen.result(payload, f"{tables}{where}: {done}")


async def _there(store: Store) -> TablesMade:
    try:
        return await store.checkup.tables_made()
    except ConfigurationError as error:
        if error.code != "no_permission":
            raise
        return TablesMade()  # init itself needs the same right, and its error names the remedy


async def _init(store: Store, told: set[str], with_items: bool) -> tuple[list[str], TablesMade]:
    """Create or upgrade the tables.

    Returns the steps applied, and the tables that exist now beside that of the leases.
    """
    async with store:
        there = await _there(store)
        for name in there.outboxes:
            if name not in told:
                store.outbox(name)
        if with_items or there.has_items:
            store.items("any")
        applied = await store.init()
        return applied, TablesMade(there.outboxes, with_items or there.has_items)
