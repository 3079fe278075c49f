"""One line of what the doctor says."""

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
    of: str = ""  # for people, where two rows would have the same name


def failed(check: str, error: FenceholdError, outbox: str | None = None) -> Finding:
    """What the store answered instead, with its own advice."""
    return Finding(check, State.ERROR, without_secrets(error.message.rstrip(".")), without_secrets(error.hint), outbox)
