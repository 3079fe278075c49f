"""What fencehold tells of the lease, as the service passes it on and remembers it."""

from __future__ import annotations

from typing import Any

from fencehold.model.errors import redact
from fencehold.ports.facts import FactSink
from submission_manager.own_words import CODED, HINTS


class OneLoss:
    """A sink that passes on one `leader_lost` of a term: a lease that could not be given back was lost already."""

    def __init__(self, facts: FactSink) -> None:
        self._facts = facts
        self._lost: tuple[Any, Any] | None = None

    def fact(self, event: str, **fields: Any) -> None:
        if event == "leader_lost":
            term = fields.get("lease_name"), fields.get("lease_epoch")
            if term == self._lost:
                return
            self._lost = term
        self._facts.fact(event, **fields)


class OneRenewal:
    """A sink that passes on the first renewal of a term as it is, and the later ones as repeats: the log has the first.

    One every few seconds would drown everything else; a leader that no longer renews is told of anyway.
    """

    def __init__(self, facts: FactSink) -> None:
        self._facts = facts
        self._renewed: tuple[Any, Any] | None = None

    def fact(self, event: str, **fields: Any) -> None:
        if event == "leader_renewed":
            term = fields.get("lease_name"), fields.get("lease_epoch")
            if term == self._renewed:
                fields["is_repeat"] = True
            self._renewed = term
        self._facts.fact(event, **fields)


class LeaseTrouble:
    """A sink that remembers which table or right keeps this instance from the lease, until it has it. Any thread."""

    def __init__(self) -> None:
        self.newest: str | None = None

    def fact(self, event: str, **fields: Any) -> None:
        if event in ("leader_acquired", "leader_renewed"):
            self.newest = None
        elif event == "leader_acquire_failed":
            self.newest = lacking(fields.get("sql_error"))


def lacking(error: object) -> str | None:
    """Its code and its message, if it is of a kind that waiting does not mend."""
    coded = CODED.match(error) if isinstance(error, str) else None
    return redact(str(error)) if coded is not None and coded[1] in HINTS else None
