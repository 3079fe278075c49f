"""Checks the settings `durable` and `without_standby`, without any I/O.

They say whether a commit must reach a standby before it counts, and what to do with a server that has no standby.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fencehold.model.errors import ConfigurationError

#: How far a commit must have got before it counts, and what to do with a server that waits for no standby.
Durability = Literal["replicated", "replicated_and_applied"]
WithoutStandby = Literal["refuse", "warn"]

#: Each level and its value of PostgreSQL's `synchronous_commit`.
LEVELS = {"replicated": "on", "replicated_and_applied": "remote_apply"}
REFUSE, WARN = "refuse", "warn"

NO_STANDBY_OF_ITS_OWN = {
    "sqlite": ("SQLite is one file on one machine: it has no standby.", "Leave durable= out; a commit is on disk."),
    "memory": ("A store in memory has no standby.", "Leave durable= out."),
    "mssql": (
        "SQL Server waits for a secondary as its availability group is set, whatever a transaction asks for.",
        "Set SYNCHRONOUS_COMMIT and REQUIRED_SYNCHRONIZED_SECONDARIES_TO_COMMIT = 1 there; leave durable= out.",
    ),
    "cosmos": (
        "Cosmos DB replicates as the account's consistency says, whatever a request asks for.",
        "Set the account to strong consistency, and leave durable= out.",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Durable:
    """The checked settings. `level`: the value for PostgreSQL's `synchronous_commit`.

    `refuses`: True if the store grants nothing while the server waits for no standby.
    """

    level: str
    refuses: bool


@dataclass(frozen=True)
class Called:
    """What the two settings are called where the caller gave them (arguments, options), for error messages."""

    durable: str = "durable"
    without_standby: str = "without_standby"


ARGUMENTS = Called()


def durable(wanted: Any, without_standby: Any = None, called: Called = ARGUMENTS) -> Durable | None:
    """Return the checked settings; None if neither setting was given. Raises ConfigurationError (bad_durable)."""
    if wanted is not None and (not isinstance(wanted, str) or wanted not in LEVELS):
        raise _bad(f"{called.durable} is {wanted!r:.60}; it must be {' or '.join(map(repr, LEVELS))}.", called)
    if without_standby not in (None, REFUSE, WARN):
        message = f"{called.without_standby} is {without_standby!r:.60}; it must be {REFUSE!r} or {WARN!r}."
        raise _bad(message, called)
    if wanted is None:
        if without_standby is not None:
            message = (
                f"{called.without_standby} was given and {called.durable} was not: nothing would be asked of a standby."
            )
            raise _bad(message, called)
        return None
    return Durable(LEVELS[wanted], without_standby != WARN)


def unsupported(scheme: str, called: Called = ARGUMENTS) -> ConfigurationError:
    """Return the error for `durable` on another database than PostgreSQL: there a transaction cannot ask for it."""
    message, hint = NO_STANDBY_OF_ITS_OWN[scheme]
    if called is not ARGUMENTS:
        hint = hint.replace("durable=", called.durable)
    said = f"{called.durable}{'=' if called is ARGUMENTS else ''} is for PostgreSQL. {message}"
    return ConfigurationError(said, hint=hint, code="durable_unsupported")


def _bad(message: str, called: Called) -> ConfigurationError:
    hint = (
        f'Write {called.durable}="replicated"; {called.without_standby}="warn" goes on without a synchronous standby.'
    )
    return ConfigurationError(message, hint=hint, code="bad_durable")
