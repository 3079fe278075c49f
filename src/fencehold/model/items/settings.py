"""The settings of items and of their processors, and the checks of what is written to an item.

A processor handles the items of one kind that are in one state. Settings are checked before any I/O, and one error
names every problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fencehold.model import names
from fencehold.model.durations import Duration
from fencehold.model.errors import ConfigurationError
from fencehold.model.json_text import json_text
from fencehold.model.outbox.settings import CONCURRENCY_MAX, UNSURE
from fencehold.model.settings import GOOD_START, HEARTBEAT_PART, Check, HeartbeatSettings

DOCUMENT_BYTES_MAX = 1024 * 1024
BATCH_MAX = 1000  # items one statement leases at most
PROCESSOR_BATCH_MAX = 500
STALL_LEASES = 3


@dataclass(frozen=True)
class ItemSettings(HeartbeatSettings):
    stall_limit_s: float
    document_bytes_max: int


def item_settings(
    *,
    lease: Duration = 60,
    heartbeat_every: Duration | None = None,
    stall_limit: Duration | None = None,
    document_bytes_max: int = DOCUMENT_BYTES_MAX,
) -> ItemSettings:
    """Return the settings with defaults filled in. Raises one ConfigurationError that names every problem."""
    check = Check("Item")
    lease_s = check.seconds(lease, "lease", 60.0)
    heartbeat_s = check.seconds(heartbeat_every, "heartbeat_every", lease_s * HEARTBEAT_PART)
    stall_s = check.seconds(stall_limit, "stall_limit", lease_s * STALL_LEASES)
    check.heartbeat(lease_s, heartbeat_s)
    check.that(
        stall_s >= heartbeat_s, f"stall_limit ({stall_s:g} s) must not be below heartbeat_every ({heartbeat_s:g} s)"
    )
    check.count(document_bytes_max, "document_bytes_max", 1, 1024**3)
    check.done(GOOD_START.format(60))
    return ItemSettings(lease_s, heartbeat_s, stall_s, document_bytes_max)


@dataclass(frozen=True)
class ProcessorSettings:
    concurrency: int
    batch: int
    poll_every_s: float
    max_processing_s: float
    shutdown_timeout_s: float


def processor_settings(
    lease_s: float,
    *,
    concurrency: int = 10,
    batch: int = 20,
    poll_every: Duration = 1,
    max_processing: Duration | None = None,
    shutdown_timeout: Duration | None = None,
) -> ProcessorSettings:
    """Return the settings of one processor, checked against the lease of its items.

    Raises one ConfigurationError that names every problem.
    """
    check = Check("Processor")
    poll_s = check.seconds(poll_every, "poll_every", 1.0)
    processing_s = check.seconds(max_processing, "max_processing", 3 * lease_s)
    shutdown_s = check.seconds(shutdown_timeout, "shutdown_timeout", lease_s)
    check.count(concurrency, "concurrency", 1, CONCURRENCY_MAX)
    check.count(batch, "batch", 1, PROCESSOR_BATCH_MAX)
    check.that(
        shutdown_s <= lease_s, f"shutdown_timeout ({shutdown_s:g} s) must not be above the lease ({lease_s:g} s)"
    )
    check.done(UNSURE)
    return ProcessorSettings(concurrency, batch, poll_s, processing_s, shutdown_s)


def document_json(document: Any, settings: ItemSettings) -> str:
    """Return the document as JSON text. Raises ConfigurationError (bad_document, document_too_large)."""
    return json_text(document, "document", settings.document_bytes_max, code="document", taker="kind of item")


def checked_change(state: object, document: Any, settings: ItemSettings) -> tuple[str | None, str | None]:
    """Return the state and the document as JSON, as a save sends them; what is None is not changed by the save.

    Raises ConfigurationError if both are None (nothing_to_save), or if one of them cannot be stored.
    """
    if state is None and document is None:
        raise ConfigurationError(
            "A save of neither state nor document would change nothing.",
            hint="Give save(state=..., document=...): a document changed in place is not noticed.",
            code="nothing_to_save",
        )
    return (
        None if state is None else names.item_state(state),
        None if document is None else document_json(document, settings),
    )


def checked_limit(limit: object, most: int = BATCH_MAX, hint: str = "Lease as many as can be started at once.") -> int:
    check = Check("Item")
    check.count(limit, "limit", 1, most)
    check.done(hint)
    assert isinstance(limit, int), "just checked"
    return limit
