"""Turns items into documents and back, the same for writes by etag and for stored procedures.

Times are whole milliseconds of store time. A document has this form:

    {id, pk, itemId, kind, state, stateTimestamp, document, tokenBefore,
     lease: {leasedBy, leasedAt, leaseDuration, expiresAt, token}}

`document` is the item's JSON as text: Cosmos DB keeps numbers as doubles and would change large ones. Without a lease
`leasedBy` is null and `expiresAt` 0. A deleted item leaves a document with `deleted`, no state and its last token, so
that no later lease gets the same token again. `tokenBefore` is the last token of an item that was deleted before this
item was put under the same id; while `token` is not higher, this item was never leased.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Any

from fencehold.backends.cosmos.documents import document_id
from fencehold.backends.cosmos.server_clock import EPOCH_START, Window
from fencehold.model.items.rules import Row, StoredItem, row_state
from fencehold.ports.items import ItemRow, Stretch

Document = dict[str, Any]
TIME_MS_MAX = 2**53 - 1  # the highest whole number that JavaScript counts to
MILLISECOND = dt.timedelta(milliseconds=1)


def item_partition(kind: str, bucket: int) -> str:
    return f"items:{document_id(kind)}:{bucket}"


def bucket_of(item_id: str, buckets: int) -> int:
    """Return the item's bucket: a number from 0 to `buckets` - 1.

    It is the same in every process and version; otherwise an item would not be found again.
    """
    return int.from_bytes(hashlib.sha256(item_id.encode()).digest()[:8], "big") % buckets


def item_document(partition: str, kind: str, item_id: str, row: StoredItem | None, before: Document | None) -> Document:
    """Return the document that stores `row` and replaces the document `before` (None: there is none yet).

    `row` None: the item is deleted; the document then keeps its last token.
    """
    document: Document = {"id": document_id(item_id), "pk": partition, "itemId": item_id, "kind": kind}
    if row is None:
        lease = {"leasedBy": None, "leasedAt": None, "leaseDuration": 0, "expiresAt": 0, "token": last_token(before)}
        return {**document, "state": None, "document": None, "deleted": True, "lease": lease}
    is_put_again = before is not None and bool(before.get("deleted"))
    token_before = last_token(before) if is_put_again else (before or {}).get("tokenBefore", 0)
    return {
        **document,
        "state": row.state,
        "stateTimestamp": instant_ms(row.state_timestamp),
        "document": row.document,
        "tokenBefore": token_before,
        "lease": lease_fields(row, token_before),
    }


def stretch_ms(stretch: Stretch) -> tuple[int, int]:
    since, before = stretch.since, stretch.before
    return (
        instant_ms(since) if since is not None else 0,
        instant_ms(before) if before is not None else TIME_MS_MAX,
    )


def lease_fields(row: StoredItem, token_before: int) -> Document:
    return {
        "leasedBy": row.holder_id,
        "leasedAt": instant_ms(row.leased_at) if row.leased_at is not None else None,
        "leaseDuration": duration_ms(row.lease_s),
        "expiresAt": instant_ms(row.expires_at) if row.expires_at is not None else 0,
        "token": max(row.token, token_before),
    }


def stored_item(document: Document | None) -> StoredItem | None:
    """Return the item of a document; None if it never existed or was deleted."""
    if document is None or document.get("deleted"):
        return None
    lease = document["lease"]
    is_own_token = lease["token"] > document.get("tokenBefore", 0)
    is_leased = lease["leasedBy"] is not None
    return StoredItem(
        state=document["state"],
        state_timestamp=instant(document["stateTimestamp"]),
        document=document["document"],
        token=lease["token"] if is_own_token else 0,
        holder_id=lease["leasedBy"],
        leased_at=instant(lease["leasedAt"]) if is_leased else None,
        lease_s=lease["leaseDuration"] / 1000,
        expires_at=instant(lease["expiresAt"]) if is_leased else None,
    )


def last_token(document: Document | None) -> int:
    """Return the last token of an item that exists or was deleted; 0 if there is no document."""
    return int(document["lease"]["token"]) if document is not None else 0


def seen(document: Document | None, now: dt.datetime) -> ItemRow | None:
    """Return the item as it is at this instant; a lapsed lease is left out. None if it never existed or was deleted."""
    row = stored_item(document)
    if document is None or row is None:
        return None
    item_id = document["itemId"]
    if row_state(row, now) is not Row.LIVE or row.expires_at is None:
        return ItemRow(item_id, row.state, row.state_timestamp, row.document, row.token)
    return ItemRow(
        item_id, row.state, row.state_timestamp, row.document, row.token, row.holder_id, row.leased_at, row.lease_s,
        row.expires_at, (row.expires_at - now).total_seconds(),
    )  # fmt: skip


def instant_ms(at: dt.datetime) -> int:
    """Return the time in milliseconds, rounded up.

    So a stored lease may last longer than needed, but never shorter than its holder assumes.
    """
    return -((EPOCH_START - at) // MILLISECOND)


def to_the_millisecond(window: Window) -> Window:
    """Return the window widened to whole milliseconds, because stored times are whole milliseconds.

    A wider window is always safe. A window is the range of times that the server's clock lies in (server_clock.py).
    """
    earliest = EPOCH_START + (window.earliest - EPOCH_START) // MILLISECOND * MILLISECOND
    return Window(earliest, instant(instant_ms(window.latest)))


def duration_ms(seconds: float) -> int:
    return -(dt.timedelta(seconds=-seconds) // MILLISECOND)


def instant(at_ms: int) -> dt.datetime:
    return EPOCH_START + dt.timedelta(milliseconds=at_ms)
