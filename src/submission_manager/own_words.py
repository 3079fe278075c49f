"""Replaces fencehold's hints where they name a command or a call that creates tables other than the service's."""

from __future__ import annotations

import re
from typing import Any

from fencehold import FactSink

PRINTS = "`submission-manager sql init` prints it"
INIT = f"Start one instance without --no-init as a user who may create tables, or run the SQL by hand: {PRINTS}."

#: The service's hint for each error code.
HINTS = {
    "schema_missing": INIT,
    "schema_old": INIT.replace("create", "change"),
    "no_permission": "GRANT this user what `submission-manager sql init` names; to create tables it needs more.",
    "table_lost": f"Restore it from a backup. If what it held may be lost, make it again by hand: {PRINTS}.",
    "column_lost": f"Restore it from a backup. If what it held may be lost, make it again by hand: {PRINTS}.",
}
FOREIGN = ("`fencehold ", "`await store.")
#: A fencehold command that helps here too, if it is given the database and the table: (theirs, ours).
DOCTOR = "`fencehold doctor`", '`FENCEHOLD_DSN="$SM_DATABASE" fencehold doctor --table submission_manager_leases`'
TEXTS = ("sql_error", "error")

CODED = re.compile(r"\[(\w+)\] ")
_SENTENCE_END = re.compile(r"(?<=\.)\s+")


def own_hint(code: str, hint: str) -> str:
    """Return `hint`, or the service's own hint if `hint` names a fencehold command.

    The result is empty if the service has no hint for this code.
    """
    hint = hint.replace(*DOCTOR)
    return HINTS.get(code, "") if is_foreign(hint) else hint


def own_text(text: str) -> str:
    """Return the error text (code, message, hint) with fencehold's hint replaced by the service's."""
    text = text.replace(*DOCTOR)
    coded = CODED.match(text)
    if coded is None or coded[1] not in HINTS or not is_foreign(text):
        return text
    kept = [sentence for sentence in _SENTENCE_END.split(text) if not is_foreign(sentence)]
    return " ".join([*kept, HINTS[coded[1]]])


def is_foreign(text: str) -> bool:
    return any(words in text for words in FOREIGN)


class OwnWords:
    """A sink that passes on every fact, with the hints of its errors replaced by the service's."""

    def __init__(self, facts: FactSink) -> None:
        self._facts = facts

    def fact(self, event: str, **fields: Any) -> None:
        own = {name: own_text(fields[name]) for name in TEXTS if isinstance(fields.get(name), str)}
        if isinstance(fields.get("hint"), str):
            own["hint"] = own_hint(str(fields.get("code")), fields["hint"])
        self._facts.fact(event, **fields | own)
