"""`fencehold items ls`: lists items, the longest in their state first."""

from __future__ import annotations

import datetime as dt

import click

from fencehold.cli.items.words import held, in_state, item_json, kind_option, kinds_of
from fencehold.cli.setup import Setup, with_setup, with_store
from fencehold.runtime.items.item import ItemView
from fencehold.runtime.items.items import FIND_MAX
from fencehold.runtime.store import Store

COLUMNS = ("ID", "KIND", "STATE", "IN STATE FOR", "TOKEN", "NOW")

EPILOG = """\b
Examples:
  fencehold items ls --state REQUESTED
  fencehold items ls --kind negotiation --limit 10 -o json

Exit codes: 0 done, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=EPILOG)
@click.option("--state", metavar="STATE", default=None, help="Only items in this state.  [all]")
@click.option("--limit", type=click.IntRange(1, FIND_MAX), default=50, help=f"At most so many (to {FIND_MAX}).  [50]")
@kind_option
@with_setup
def ls(setup: Setup, state: str | None, limit: int, kind: str | None) -> None:
    """List items, the longest in their state first, and who holds them.

    Without their document: `fencehold items show` has it.
    """
    views = with_store(setup, lambda store: _find(store, kind, state, limit))
    payload = {"items": [item_json(view, with_document=False) for view in views]}
    now = dt.datetime.now(dt.UTC)
    none = "no such items" if state or kind else "no items"
    setup.screen.table(payload, COLUMNS, [_row(view, now) for view in views], instead=none)
    if len(views) == limit:
        setup.screen.say(f"these are the first {limit}; there may be more (--limit)")


async def _find(store: Store, kind: str | None, state: str | None, limit: int) -> list[ItemView]:
    found = [await store.items(one).find(state, limit) for one in await kinds_of(store, kind)]
    return sorted((view for views in found for view in views), key=lambda view: view.state_timestamp)[:limit]


def _row(view: ItemView, now: dt.datetime) -> list[str]:
    return [view.id, view.kind, view.state, in_state(view, now), str(view.token), held(view)]
