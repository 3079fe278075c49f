"""Turns values into parameters of item statements as SQLite reads them, and rows into items."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

from fencehold.backends.sqlite.leases import modifier
from fencehold.backends.sqlite.times import nearest
from fencehold.model.items.rules import ItemKey
from fencehold.ports.items import ItemRow, Stretch

Row = tuple[Any, ...]
Params = dict[str, Any]

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def keys_param(keys: Sequence[ItemKey]) -> str:
    return _json([(key.id, key.holder_id, key.token) for key in keys])


def ids_param(ids: Sequence[str]) -> str:
    return _json(list(ids))


def key_params(key: ItemKey) -> Params:
    return {"id": key.id, "holder": key.holder_id, "token": key.token}


def lease_params(lease_s: float) -> Params:
    return {"lease": modifier(lease_s), "lease_ms": round(lease_s * 1000)}


def stretch_params(stretch: Stretch) -> Params:
    """Return the parameters for a range of times, in the form of the column.

    A range without a start begins at the empty text, which sorts before every time; one without an end ends at `~`,
    which sorts after every time.
    """
    since, before = stretch.since, stretch.before
    return {"since": _time(since) if since is not None else "", "before": _time(before) if before is not None else "~"}


def _time(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def item(row: Row) -> ItemRow:
    """Return the item of a row. If its lease has lapsed, the item is returned without a holder."""
    item_id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at, now = row
    if holder_id is None or expires_at <= now:
        return ItemRow(item_id, state, nearest(state_timestamp), document, token)
    remaining_s = (nearest(expires_at) - nearest(now)).total_seconds()
    return ItemRow(
        item_id, state, nearest(state_timestamp), document, token, holder_id, nearest(leased_at), lease_ms / 1000,
        nearest(expires_at), remaining_s,
    )  # fmt: skip
