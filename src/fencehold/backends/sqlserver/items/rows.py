"""Turns values into parameters of item statements as SQL Server reads them, and rows into items.

SQL Server takes a text and the same text with blanks after it as equal. The library allows no name that ends with a
blank; for callers that use the port itself, such a name is stored with a mark after it.

In a list, which is JSON, what JSON would escape in a name is percent-encoded (%22 and %5C, and so %25): not every
server that speaks T-SQL decodes JSON's own escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fencehold.backends.sqlserver import params
from fencehold.backends.sqlserver.params import instant, instant_text, rows_json
from fencehold.model.items.items import ItemKey
from fencehold.ports.items import ItemRow, Stretch

Row = tuple[Any, ...]
Params = dict[str, Any]

BLANK_MARK = "\u2420"
FIRST_INSTANT, LAST_INSTANT = "0001-01-01T00:00:00", "9999-12-31T23:59:59.9999999"  # of datetime2(7)


def stored(name: str) -> str:
    """Return the name as its column stores it.

    A name that ends with the mark itself gets another one, so that no two names become one.
    """
    return name + BLANK_MARK if name.endswith((" ", BLANK_MARK)) else name


def given(column: str) -> str:
    """Return the name for what its column stores, the opposite of `stored`."""
    return column.removesuffix(BLANK_MARK)


def listed(name: str) -> str:
    """Return the name as it is written in a list; the statements decode it in the opposite order."""
    return params.listed(stored(name))


def keys_param(keys: Sequence[ItemKey]) -> str:
    return rows_json({"id": listed(key.id), "holder": listed(key.holder_id), "token": key.token} for key in keys)


def ids_param(ids: Iterable[str]) -> str:
    """Return a list that has each id once, as the statement requires."""
    return rows_json({"id": listed(item_id)} for item_id in dict.fromkeys(ids))


def key_params(key: ItemKey) -> Params:
    return {"id": stored(key.id), "holder": stored(key.holder_id), "token": key.token}


def lease_ms(lease_s: float) -> int:
    return round(lease_s * 1000)


def stretch_params(stretch: Stretch) -> Params:
    since, before = stretch.since, stretch.before
    return {
        "since": instant_text(since) if since is not None else FIRST_INSTANT,
        "before": instant_text(before) if before is not None else LAST_INSTANT,
    }


def key(row: Row) -> ItemKey:
    """Return the key from the three columns that identify a lease on an item."""
    return ItemKey(given(row[0]), given(row[1]), row[2])


def item(row: Row) -> ItemRow:
    """Return the item from the first ten columns of every statement's rows; a lapsed lease is left out."""
    item_id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at, now = row[:10]
    if holder_id is None or expires_at <= now:
        return ItemRow(given(item_id), given(state), instant(state_timestamp), document, token)
    return ItemRow(
        given(item_id), given(state), instant(state_timestamp), document, token, given(holder_id), instant(leased_at),
        lease_ms / 1000, instant(expires_at), (expires_at - now).total_seconds(),
    )  # fmt: skip


def is_done(row: Row) -> bool:
    """Whether a verb on one item was done, which is the last column of its row."""
    return bool(row[10])
