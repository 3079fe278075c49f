"""The fence in a caller's transaction (`term.fence(connection)`): a refused transaction is made unable to commit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable
from contextlib import suppress

from fencehold.backends.sql.callers.connections import CallersConnection, Steps
from fencehold.backends.sql.callers.dialect import Dialect
from fencehold.backends.sql.callers.kinds import kind_of
from fencehold.backends.sql.callers.work import CallersWork, begin_hint
from fencehold.backends.sql.fenced import OVER, lost
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import ConfigurationError, FenceholdError


class CallersFence(CallersWork):
    """The fence of one lease table, on connections that callers give.

    A subclass for each database says how to ask the store (`ask`), and which errors of that are also a refusal
    (`failure`).
    """

    def fence(self, given: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        """Check the lease in the caller's transaction, and lock it there. Returns None if the transaction is fenced.

        Otherwise it raises the refusal, such as LeaseLost, and the transaction cannot commit, whatever the caller does
        then. `over`: the term is over in this process already, so the refusal is raised without asking the store.
        """
        return self.perform(given, lambda connection: self.fenced(connection, key, over))

    def spoil(self, given: object) -> Awaitable[None]:
        """Make the transaction that is open on this connection unable to commit."""
        return self.connection(given).perform(self.spoiled)

    def fenced(self, connection: CallersConnection, key: TermKey, over: bool = False) -> Steps[None]:
        refusal: FenceholdError | None = lost(key, f"{OVER}; this transaction was {self.dialect.refused}")
        if not over:
            try:
                refusal = yield from self.ask(connection, key)
            except GeneratorExit:
                raise
            except BaseException as error:
                fault = self.failure(error, key)
                if fault is None:
                    raise
                with suppress(Exception):
                    yield from self.dialect.poison(connection)
                if fault is error:
                    raise
                raise fault from error
        if refusal is not None:
            yield from self.dialect.poison(connection)
            raise refusal

    def spoiled(self, connection: CallersConnection) -> Steps[None]:
        if connection.in_transaction:
            yield from self.dialect.poison(connection)

    @abstractmethod
    def ask(self, connection: CallersConnection, key: TermKey) -> Steps[FenceholdError | None]:
        """Ask the store whether the lease is still the holder's, and lock it. Return None if that is so.

        Else return the refusal; the caller makes the transaction unable to commit and raises it. Raises
        ConfigurationError (fence_outside_transaction) if no transaction is open.
        """

    def failure(self, error: BaseException, key: TermKey) -> BaseException | None:
        """Return the error to raise for `error`, which `ask` raised, and for which the transaction must fail too.

        None, the default: `error` is raised as it is, and the transaction stays as it is.
        """
        return None

    def bad_connection(self, target: object) -> ConfigurationError:
        return ConfigurationError(
            f"term.fence() cannot use a {kind_of(target)}.", hint=f"{self.dialect.takes}.", code="bad_connection"
        )

    def outside(self, connection: CallersConnection) -> ConfigurationError:
        return fence_outside(begin_hint(connection, fence_hint(self.dialect)))


def fence_hint(dialect: Dialect) -> str:
    return f"{dialect.begin}, then fence, then write."


def fence_outside(hint: str) -> ConfigurationError:
    return ConfigurationError(
        "term.fence() needs an open transaction: in autocommit its lock would be gone before your write.",
        hint=hint,
        code="fence_outside_transaction",
    )
