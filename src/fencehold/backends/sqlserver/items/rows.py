"""Turns values into the parameters of item statements, and the rows of their answers into items.

SQL Server takes a text and the same text with blanks after it as equal. The library allows no name that ends with a
blank. But callers of the item port itself may use such names, so these are stored with a mark at the end.

In a list, which is sent as JSON, the double quotes and backslashes of a name are percent-encoded (%22 and %5C, and so
%25), because not every server that speaks T-SQL decodes JSON's own escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fencehold.backends.sql.items import ItemDialect, Params
from fencehold.backends.sqlserver import params
from fencehold.backends.sqlserver.params import instant_text, rows_json
from fencehold.model.items.rules import ItemKey
from fencehold.ports.items import Stretch

BLANK_MARK = "\u2420"
FIRST_INSTANT, LAST_INSTANT = "0001-01-01T00:00:00", "9999-12-31T23:59:59.9999999"  # of datetime2(7)


def stored(name: str) -> str:
    """Return the text that the column stores for this name: with a mark at the end if the name ends with a blank.

    A name that ends with the mark itself gets another mark, so that no two names are stored as the same text.
    """
    return name + BLANK_MARK if name.endswith((" ", BLANK_MARK)) else name


def given(column: str) -> str:
    """Return the name that the column's text stands for: the opposite of `stored`."""
    return column.removesuffix(BLANK_MARK)


def listed(name: str) -> str:
    """Return the name as a list contains it, percent-encoded. The statements decode it."""
    return params.listed(stored(name))


def keys(keys: Sequence[ItemKey]) -> Params:
    rows = ({"id": listed(key.id), "holder": listed(key.holder_id), "token": key.token} for key in keys)
    return {"keys": rows_json(rows)}


def ids(ids: Iterable[str]) -> str:
    """Return a list that has each id once, as the statement requires."""
    return rows_json({"id": listed(item_id)} for item_id in dict.fromkeys(ids))


def stretch(stretch: Stretch) -> Params:
    since, before = stretch.since, stretch.before
    return {
        "since": instant_text(since) if since is not None else FIRST_INSTANT,
        "before": instant_text(before) if before is not None else LAST_INSTANT,
    }


DIALECT = ItemDialect(params.instant, ids, keys, stretch, stored, given, params.NO_TEXT)
