"""The service's own advice where fencehold's would name a command or a call that makes other tables than these."""

from __future__ import annotations

import re
from typing import Any

from fencehold.ports.facts import FactSink

PRINTS = "`submission-manager sql init` prints it"
INIT = f"Start one instance without --no-init as a user who may create tables, or run the SQL by hand: {PRINTS}."

#: By the code of the error.
HINTS = {
    "schema_missing": INIT,
    "schema_old": INIT.replace("create", "change"),
    "no_permission": "GRANT this user what `submission-manager sql init` names; to create tables it needs more.",
    "table_lost": f"Restore it from a backup. If what it held may be lost, make it again by hand: {PRINTS}.",
    "column_lost": f"Restore it from a backup. If what it held may be lost, make it again by hand: {PRINTS}.",
}
FOREIGN = ("`fencehold ", "`await store.")
#: A command of fencehold that helps here too, once it is told which database and which table.
DOCTOR = "`fencehold doctor`", '`FENCEHOLD_DSN="$SM_DATABASE" fencehold doctor --table submission_manager_leases`'
TEXTS = ("sql_error", "error")

CODED = re.compile(r"\[(\w+)\] ")
_SENTENCE_END = re.compile(r"(?<=\.)\s+")


def own_hint(code: str, hint: str) -> str:
    """`hint`, or in its place what the service advises; empty where it would only name somebody else's command."""
    hint = hint.replace(*DOCTOR)
    return HINTS.get(code, "") if is_foreign(hint) else hint


def own_text(text: str) -> str:
    """The same for an error as it is written: its code, its message, its hint."""
    text = text.replace(*DOCTOR)
    coded = CODED.match(text)
    if coded is None or coded[1] not in HINTS or not is_foreign(text):
        return text
    kept = [sentence for sentence in _SENTENCE_END.split(text) if not is_foreign(sentence)]
    return " ".join([*kept, HINTS[coded[1]]])


def is_foreign(text: str) -> bool:
    return any(words in text for words in FOREIGN)


class OwnWords:
    """A sink that passes every fact on with the errors in it in the service's words."""

    def __init__(self, facts: FactSink) -> None:
        self._facts = facts

    def fact(self, event: str, **fields: Any) -> None:
        own = {name: own_text(fields[name]) for name in TEXTS if isinstance(fields.get(name), str)}
        if isinstance(fields.get("hint"), str):
            own["hint"] = own_hint(str(fields.get("code")), fields["hint"])
        self._facts.fact(event, **fields | own)
