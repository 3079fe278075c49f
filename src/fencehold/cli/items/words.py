"""An item as text and as JSON, and finding the item that an operator names."""

from __future__ import annotations

import datetime as dt
from typing import Any

import click

from fencehold.cli import exit_codes
from fencehold.cli.screen import moment, span
from fencehold.model.errors import ConfigurationError
from fencehold.runtime.items.item import ItemView
from fencehold.runtime.store import Store

kind_option = click.option("--kind", metavar="KIND", default=None, help="Only items of this kind.  [all kinds]")


async def kinds_of(store: Store, kind: str | None) -> list[str]:
    return [kind] if kind is not None else await store.item_kinds()


async def the_item(store: Store, item_id: str, kind: str | None) -> ItemView:
    """Return the item with this id, of this kind if one is named.

    Raises ConfigurationError if several kinds have this id and none is named, Refused if there is no such item.
    """
    views = [await store.items(one).get(item_id) for one in await kinds_of(store, kind)]
    found = [view for view in views if view is not None]
    if len(found) > 1:
        kinds = ", ".join(view.kind for view in found)
        raise ConfigurationError(
            f"Items of several kinds have the id {item_id!r}: {kinds}.", hint="Say which: --kind.", code="which_kind"
        )
    if not found:
        of_kind = f" of kind {kind!r}" if kind is not None else ""
        raise exit_codes.Refused(
            f"There is no item {item_id!r}{of_kind}.",
            hint="`fencehold items ls` lists what there is.",
            code="no_such_item",
            exit_code=exit_codes.NO,
        )
    return found[0]


def held(view: ItemView) -> str:
    """Return as text who holds the item, and until when."""
    if view.holder_id is None or view.expires_at is None:
        return "free"
    return f"held by {view.holder_id} until {moment(view.expires_at)}"


def in_state(view: ItemView, now: dt.datetime) -> str:
    return span((now - view.state_timestamp).total_seconds())


def item_json(view: ItemView, *, with_document: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": view.id,
        "kind": view.kind,
        "state": view.state,
        "state_timestamp": view.state_timestamp.isoformat(),
        "holder_id": view.holder_id,
        "leased_at": view.leased_at.isoformat() if view.leased_at else None,
        "expires_at": view.expires_at.isoformat() if view.expires_at else None,
        "token": view.token,
    }
    return {**fields, "document": view.document} if with_document else fields
