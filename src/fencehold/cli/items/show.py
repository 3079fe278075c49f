"""`fencehold items show ID`: one item in full, and who holds it."""

from __future__ import annotations

import json

import click

from fencehold.cli.items.words import held, item_json, kind_option, the_item
from fencehold.cli.screen import clean, moment, put
from fencehold.cli.setup import Setup, with_setup, with_store
from fencehold.runtime.items.item import ItemView

EPILOG = """\b
Examples:
  fencehold items show n-7
  fencehold items show n-7 --kind negotiation -o json | jq .item.document

Exit codes: 0 done, 1 no such item, 69 database unreachable, 78 bad configuration
"""


@click.command(epilog=EPILOG)
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
