"""Between rows and values: parameters of item statements as SQL Server reads them, and rows as items.

SQL Server takes a text and the same text with blanks behind it for equal. The library lets no name end with a blank;
for whoever uses the port itself, such a name is kept with a mark behind it.

In a list, which is JSON, a name has what JSON would escape written as in an address (%22 and %5C, and so %25): not
every server that speaks T-SQL takes JSON's own escapes back.
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
    """As it stands in its column; what ends with the mark itself gets another one, so no two names become one."""
    return name + BLANK_MARK if name.endswith((" ", BLANK_MARK)) else name


def given(column: str) -> str:
    """The name that is stored so."""
    return column.removesuffix(BLANK_MARK)


def listed(name: str) -> str:
    """As it stands in a list; the statements take it back in the opposite order."""
    return params.listed(stored(name))


def keys_param(keys: Sequence[ItemKey]) -> str:
    return rows_json({"id": listed(key.id), "holder": listed(key.holder_id), "token": key.token} for key in keys)


def ids_param(ids: Iterable[str]) -> str:
    """Each once: the statement counts on it."""
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
    """Of the three columns that say which lease on which item."""
    return ItemKey(given(row[0]), given(row[1]), row[2])


def item(row: Row) -> ItemRow:
    """Of the ten columns that every statement answers first; a lapsed lease is none."""
    item_id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at, now = row[:10]
    if holder_id is None or expires_at <= now:
        return ItemRow(given(item_id), given(state), instant(state_timestamp), document, token)
    return ItemRow(
        given(item_id), given(state), instant(state_timestamp), document, token, given(holder_id), instant(leased_at),
        lease_ms / 1000, instant(expires_at), (expires_at - now).total_seconds(),
    )  # fmt: skip


def is_done(row: Row) -> bool:
    """What a verb on one item answers last."""
    return bool(row[10])
