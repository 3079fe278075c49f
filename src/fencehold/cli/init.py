"""`fencehold init`: the tables."""

from __future__ import annotations

from typing import Any

import click

from fencehold.cli.outbox_options import outboxes_option
from fencehold.cli.screen import Screen
from fencehold.cli.setup import Setup, finish, with_setup
from fencehold.runtime.store import DEFAULT_OUTBOX

EPILOG = """\b
Examples:
  FENCEHOLD_DSN=sqlite:///app.db fencehold init
  fencehold init --outbox orders --outbox billing
  fencehold --table submission_manager_leases init -o json
\b
Exit codes: 0 done or up to date, 69 database unreachable, 78 bad configuration
"""


class Heard:
    """Hears of the default outbox that was left out, and why: say, a table of that name is somebody else's.

    What init waits for is said at once.
    """

    def __init__(self, screen: Screen) -> None:
        self.not_created: dict[str, str] = {}
        self._screen = screen

    def fact(self, event: str, **fields: Any) -> None:
        if event == "outbox_not_created":
            self.not_created[fields["outbox"]] = fields["error"]
        if event == "schema_waiting":
            self._screen.say(f"waiting: {fields['detail']}")


@click.command(epilog=EPILOG)
@outboxes_option
@with_setup
def init(setup: Setup, outbox_names: tuple[str, ...]) -> None:
    """Create or upgrade the tables of leases and outboxes: safe to repeat, safe in parallel.

    Says which steps were applied. Where only a database administrator may do this, use `fencehold sql init`.
    """
    heard = Heard(setup.screen)
    applied = finish(_init(setup, outbox_names, heard))
    outboxes = [name for name in dict.fromkeys(outbox_names or (DEFAULT_OUTBOX,)) if name not in heard.not_created]
    payload = {"table": setup.table, "outboxes": outboxes, "applied": applied, "up_to_date": not applied}
    tables = ", ".join([setup.table, *outboxes])
    setup.screen.result(payload, f"{tables}: {'applied ' + ', '.join(applied) if applied else 'already up to date'}")
    for why in heard.not_created.values():
        setup.screen.say(f"no outbox: {why} --outbox gives another name, where there can be one.")


async def _init(setup: Setup, outbox_names: tuple[str, ...], heard: Heard) -> list[str]:
    store = setup.store(heard)
    for name in dict.fromkeys(outbox_names):
        store.outbox(name)
    async with store:
        return await store.init()
