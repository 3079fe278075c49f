"""Turns names into document ids that Cosmos DB accepts, and leases into documents and back.

Times of leases are whole microseconds of store time.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import string
from importlib import resources
from typing import Any

from fencehold.backends.cosmos.server_clock import EPOCH_START
from fencehold.model.election.rules import Lease

Document = dict[str, Any]

ID_CHARS_MAX = 900  # of the 1023 bytes that Cosmos DB takes
_PLAIN = frozenset((string.ascii_letters + string.digits + "-_").encode())
MICROSECOND = dt.timedelta(microseconds=1)


def document_id(name: str) -> str:
    """Return a document id for this name; no two names have the same id.

    Cosmos DB forbids four characters (slash, backslash, question mark, number sign) in an id, and shortens a path of
    dots, so these are encoded. A name too long for an id is replaced by its hash; the document also holds the name
    itself.
    """
    encoded = "".join(chr(byte) if byte in _PLAIN else f"~{byte:02x}" for byte in name.encode())
    return encoded if len(encoded) <= ID_CHARS_MAX else f"~sha256-{hashlib.sha256(name.encode()).hexdigest()}"


def query(name: str) -> str:
    """Return the text of queries/<name>.sql without its header."""
    text = (resources.files(__package__) / "queries" / f"{name}.sql").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip().removesuffix(";")


def lease_document(partition: str, lease: Lease) -> Document:
    return {
        "id": document_id(lease.name),
        "pk": partition,
        "name": lease.name,
        "holderId": lease.holder_id,
        "epoch": lease.epoch,
        "acquiredAt": instant_us(lease.acquired_at),
        "renewedAt": instant_us(lease.renewed_at),
        "expiresAt": instant_us(lease.expires_at),
        "stepDownRequested": lease.step_down_requested,
        "nonce": lease.nonce,
    }


def lease_row(document: Document) -> Lease:
    """Return the lease of a document. Its `remaining_s` is 0: the caller knows the time and sets it."""
    return Lease(
        name=document["name"],
        holder_id=document["holderId"],
        epoch=document["epoch"],
        acquired_at=instant(document["acquiredAt"]),
        renewed_at=instant(document["renewedAt"]),
        expires_at=instant(document["expiresAt"]),
        remaining_s=0.0,
        step_down_requested=document["stepDownRequested"],
        nonce=document["nonce"],
    )


def instant_us(at: dt.datetime) -> int:
    return (at - EPOCH_START) // MICROSECOND


def instant(at_us: int) -> dt.datetime:
    return EPOCH_START + dt.timedelta(microseconds=at_us)
