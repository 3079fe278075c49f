"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass

from fencehold.cli.screen import without_secrets
from fencehold.model.errors import FenceholdError
from fencehold.ports.checkup import State


@dataclass(frozen=True)
class Finding:
    check: str
    state: State
    detail: str
    hint: str = ""
    outbox: str | None = None
    of: str = ""  # shown in the table, where two rows would have the same name


def failed(check: str, error: FenceholdError, outbox: str | None = None) -> Finding:
    """A finding from the error that the store raised, with the error's own hint."""
    return Finding(check, State.ERROR, without_secrets(error.message.rstrip(".")), without_secrets(error.hint), outbox)
