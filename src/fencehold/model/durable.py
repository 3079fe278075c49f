"""What a store asks of a commit beyond the database's own setting; checked before any I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fencehold.model.errors import ConfigurationError

#: How far a commit must have got before it counts; and what becomes of a server that waits for no standby.
Durability = Literal["replicated", "replicated_and_applied"]
WithoutStandby = Literal["refuse", "warn"]

#: By its name, as PostgreSQL's `synchronous_commit` calls it.
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
    """`level`: how far a commit must have got before it counts; `refuses`: without a standby nothing is granted."""

    level: str
    refuses: bool


def durable(wanted: Any, without_standby: Any = None) -> Durable | None:
    """What was asked for; None: nothing beyond what the database does by itself."""
    if wanted is not None and (not isinstance(wanted, str) or wanted not in LEVELS):
        raise _bad(f"durable is {wanted!r:.60}; it must be {' or '.join(map(repr, LEVELS))}.")
    if without_standby not in (None, REFUSE, WARN):
        raise _bad(f"without_standby is {without_standby!r:.60}; it must be {REFUSE!r} or {WARN!r}.")
    if wanted is None:
        if without_standby is not None:
            raise _bad("without_standby was given and durable was not: nothing would be asked of a standby.")
        return None
    return Durable(LEVELS[wanted], without_standby != WARN)


def unsupported(scheme: str) -> ConfigurationError:
    """For a database in which no transaction can ask for more than is set for all of them."""
    message, hint = NO_STANDBY_OF_ITS_OWN[scheme]
    return ConfigurationError(f"durable= is for PostgreSQL. {message}", hint=hint, code="durable_unsupported")


def _bad(message: str) -> ConfigurationError:
    hint = 'Write durable="replicated"; without_standby="warn" goes on without a synchronous standby.'
    return ConfigurationError(message, hint=hint, code="bad_durable")
