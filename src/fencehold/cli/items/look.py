"""`fencehold items ls` and `show ID`: the items, the longest in their state first, and one item in full."""

from __future__ import annotations

import datetime as dt
import json

import click

from fencehold.cli.items.words import held, in_state, item_json, kind_option, kinds_of, the_item
from fencehold.cli.screen import clean, moment, put
from fencehold.cli.setup import Setup, with_setup, with_store
from fencehold.runtime.items.item import ItemView
from fencehold.runtime.items.items import FIND_MAX
from fencehold.runtime.store import Store

COLUMNS = ("ID", "KIND", "STATE", "IN STATE FOR", "TOKEN", "NOW")

LS_EPILOG = """\b
Examples:
  fencehold items ls --state REQUESTED
  fencehold items ls --kind negotiation --limit 10 -o json

Exit codes: 0 done, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=LS_EPILOG)
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


SHOW_EPILOG = """\b
Examples:
  fencehold items show n-7
  fencehold items show n-7 --kind negotiation -o json | jq .item.document

Exit codes: 0 done, 1 no such item, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=SHOW_EPILOG)
@click.argument("item_id", metavar="ID")
@kind_option
@with_setup
def show(setup: Setup, item_id: str, kind: str | None) -> None:
    """Show everything about one item, its document too. --kind is needed where several kinds have this id."""
    view = with_store(setup, lambda store: the_item(store, item_id, kind))
    if setup.screen.is_json:
        setup.screen.result({"item": item_json(view, with_document=True)}, "")
        return
    put(f"{clean(view.state)}: {clean(held(view))}\n")
    setup.screen.fields({}, _rows(view))
    put(f"\ndocument\n{clean(json.dumps(view.document, indent=2, ensure_ascii=False))}")


def _rows(view: ItemView) -> list[tuple[str, str]]:
    return [
        ("id", view.id),
        ("kind", view.kind),
        ("state", view.state),
        ("in it since", moment(view.state_timestamp)),
        ("holder", view.holder_id or "-"),
        ("leased at", moment(view.leased_at) if view.leased_at else "-"),
        ("held until", moment(view.expires_at) if view.expires_at else "-"),
        ("token of its last lease", str(view.token) if view.token else "never leased"),
    ]
