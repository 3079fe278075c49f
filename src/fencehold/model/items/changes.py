"""Checks and serialises every field of a write to an item, before anything is sent."""

from __future__ import annotations

from typing import Any

from fencehold.model import names
from fencehold.model.errors import ConfigurationError
from fencehold.model.items.settings import BATCH_MAX, ItemSettings
from fencehold.model.json_text import json_text
from fencehold.model.settings import Check


def document_json(document: Any, settings: ItemSettings) -> str:
    """The document as JSON, or ConfigurationError (code bad_document, document_too_large)."""
    return json_text(document, "document", settings.document_bytes_max, code="document", taker="kind of item")


def checked_change(state: object, document: Any, settings: ItemSettings) -> tuple[str | None, str | None]:
    """Return state and document as a save sends them; a save does not change what is None.

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
