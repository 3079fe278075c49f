"""The errors for a caller's connection that leads to another database than the store's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencehold.model.election.rules import TermKey
from fencehold.model.errors import ConfigurationError, FenceholdError

CODE = "wrong_store"


MADE_TO_FAIL = "The transaction was made to fail"
ROLLED_BACK = (
    "The transaction was rolled back; the next write on this connection begins another one, without a fence, that can "
    "be committed"
)


def of_fence(key: TermKey, where: str = "", outcome: str = MADE_TO_FAIL) -> ConfigurationError:
    """Return the error for a fence on a connection that leads to another database.

    `where` names the two files, on a database that is a file; `outcome` says what happened to the transaction.
    """
    if where:
        return ConfigurationError(
            f"The connection given to term.fence() leads to another file than the store's{where}: lease {key.name!r} "
            f"does not guard what is written there. {outcome}; the term goes on.",
            hint="Connect to the file that the store was opened with. One transaction cannot fence another file. Write "
            "nothing more on this connection: let the error end your block.",
            code=CODE,
        )
    return ConfigurationError(
        f"The connection given to term.fence() leads to another database than the store's: lease {key.name!r} is not "
        f"there, or is another one of that name. {outcome}; the term goes on.",
        hint="Fence transactions on the database (and schema) that the store was opened with. A repeatable read "
        "transaction whose snapshot is older than the lease looks the same: fence it first thing.",
        code=CODE,
    )


def of_outbox(outbox: str, where: str = "") -> ConfigurationError:
    """Return the error for a write to an outbox on a connection that leads to another database.

    `where` names the two files, on a database that is a file.
    """
    if where:
        return ConfigurationError(
            f"The connection given as tx leads to another file than that of the outbox {outbox!r}{where}; nothing was "
            "written.",
            hint="One transaction cannot hold both: keep the outbox in the file of the data that its events tell of.",
            code=CODE,
        )
    return ConfigurationError(
        f"The connection given as tx leads to another database than that of the outbox {outbox!r}; nothing was "
        "written.",
        hint="One transaction cannot hold both: keep the outbox in the database of the data that its events tell of. A "
        "repeatable read transaction that began before the outbox was made looks the same: begin it anew. So does, on "
        f"PostgreSQL, another table {outbox!r} that comes first in the connection's search_path.",
        code=CODE,
    )


def identity_of(rows: Sequence[tuple[Any, ...]], outbox: str) -> str:
    """Return the id of the outbox from the rows of the statement `identity`.

    Raises ConfigurationError (table_lost) if there is no row.
    """
    if not rows:
        raise ConfigurationError(
            f"The table {outbox}_identity has lost its row, by which the outbox is told from others.",
            hint="Put one in by hand: one = true (1 on SQL Server), outbox_id any text that no other database has.",
            code="table_lost",
        )
    [(outbox_id,)] = rows
    return str(outbox_id)


def is_elsewhere(fault: BaseException) -> bool:
    """Whether an error on a caller's connection says that our tables, or a column, are missing in its database.

    The store's own database has them, so the connection leads to another one.
    """
    return isinstance(fault, FenceholdError) and fault.code in ("schema_missing", "schema_old")
