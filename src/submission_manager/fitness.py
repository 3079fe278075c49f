"""Checks that this instance can lead: all tables exist, it has every right, and the tables belong to its lease.

Checked when the instance starts, when a term begins, and at intervals while it leads. Without this check, a missing
right would be noticed only after a message was sent, when its outcome cannot be recorded.
"""

from __future__ import annotations

from fencehold import ConfigurationError
from submission_manager.own_words import HINTS, INIT
from submission_manager.ports import FitnessPort

DOCS = "docs/submission-manager.md#one-lease-for-one-database"


class Fitness:
    """Checks whether an instance that leads with this lease name can do its work on the tables."""

    def __init__(self, tables: FitnessPort, lease_name: str) -> None:
        self._tables, self._lease_name = tables, lease_name

    async def misfit(self, limit_s: float) -> ConfigurationError | None:
        """Return the error that keeps this instance from leading, or None. Raises if the database does not answer."""
        missing = await self._tables.missing_tables(limit_s)
        if missing:
            return tables_missing(missing)
        rights = await self._tables.rights_missing(limit_s)
        if rights:
            return rights_missing(rights)
        owner = await self._tables.owner(self._lease_name, limit_s)
        return None if owner == self._lease_name else _another_lease(owner, self._lease_name)


def tables_missing(missing: list[str]) -> ConfigurationError:
    message = f"The service's tables are missing, or older than this version: {', '.join(missing)}."
    return ConfigurationError(message, hint=INIT, code="schema_missing")


def rights_missing(rights: list[str]) -> ConfigurationError:
    message = f"The database user of this instance lacks {', '.join(rights)}."
    return ConfigurationError(message, hint=HINTS["no_permission"], code="no_permission")


def _another_lease(owner: str, lease_name: str) -> ConfigurationError:
    return ConfigurationError(
        f"The tables of this database belong to the lease {owner!r}, and this instance has the lease name "
        f"{lease_name!r}: two leaders would make every call twice.",
        hint=f"Give all instances --lease-name {owner} (SM_LEASE_NAME); to change the name, see {DOCS}.",
        code="other_lease",
    )
