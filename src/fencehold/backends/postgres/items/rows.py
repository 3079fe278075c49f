"""Turns values into parameters of item statements as PostgreSQL reads them, and rows into items."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from fencehold.backends.postgres.arrays import array, text_array
from fencehold.model.items.items import ItemKey
from fencehold.ports.items import ItemRow, Stretch

Row = tuple[Any, ...]


def keys_params(keys: Sequence[ItemKey]) -> dict[str, str]:
    return {
        "ids": ids_param([key.id for key in keys]),
        "holders": text_array([key.holder_id for key in keys]),
        "tokens": array([key.token for key in keys]),
    }


def ids_param(ids: Sequence[str]) -> str:
    return text_array(ids)


def stretch_params(stretch: Stretch) -> dict[str, str]:
    since, before = stretch.since, stretch.before
    return {
        "since": since.isoformat() if since is not None else "-infinity",
        "before": before.isoformat() if before is not None else "infinity",
    }


def key_params(key: ItemKey) -> dict[str, Any]:
    return {"id": key.id, "holder": key.holder_id, "token": key.token}


def lease_ms(lease_s: float) -> int:
    return round(lease_s * 1000)


def item(row: Sequence[Any]) -> ItemRow:
    """Return the item of a row; a lapsed lease is left out."""
    item_id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at, now = row
    if holder_id is None or expires_at <= now:
        return ItemRow(item_id, state, state_timestamp.astimezone(dt.UTC), document, token)
    return ItemRow(
        item_id, state, state_timestamp.astimezone(dt.UTC), document, token, holder_id, leased_at.astimezone(dt.UTC),
        lease_ms / 1000, expires_at.astimezone(dt.UTC), (expires_at - now).total_seconds(),
    )  # fmt: skip


def item_and(row: Row) -> tuple[ItemRow, Any]:
    """Return the item of a row, and the column after it: whether the verb was done, or the place of the key."""
    *columns, last = row
    return item(columns), last
