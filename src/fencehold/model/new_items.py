"""What may be written to an item: every field checked and serialised before anything is sent."""

from __future__ import annotations

from typing import Any

from fencehold.model import names
from fencehold.model.errors import ConfigurationError
from fencehold.model.item_settings import BATCH_MAX, ItemSettings
from fencehold.model.json_text import json_text
from fencehold.model.outbox_settings import Check


def document_json(document: Any, settings: ItemSettings) -> str:
    """The document as JSON, or ConfigurationError (code bad_document, document_too_large)."""
    text = json_text(document, "document", settings.document_bytes_max, code="document", taker="kind of item")
    _check_keys(document)
    return text


def _check_keys(document: Any) -> None:
    """JSON has no other keys than texts: what was saved under 1 would come back under "1"."""
    waiting = [document]  # no circle: it has been written as JSON
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            wrong = [key for key in one if not isinstance(key, str)]
            if wrong:
                raise ConfigurationError(
                    f"The document has the key {wrong[0]!r:.80}, which is no text; nothing was written.",
                    hint="Use texts as keys: JSON has no others.",
                    code="bad_document",
                )
            one = one.values()
        if not isinstance(one, str | int | float | None):
            waiting += [value for value in one if isinstance(value, dict | list | tuple)]


def checked_change(state: object, document: Any, settings: ItemSettings) -> tuple[str | None, str | None]:
    """State and document as a save sends them; None: left as it is."""
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
