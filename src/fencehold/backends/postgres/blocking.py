"""Fenced transactions for programs without an event loop: they run in the calling thread, and end with the term."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from fencehold.backends.postgres import faults, hosts, wire
from fencehold.backends.sql.fenced import BEFORE_COMMIT, BEFORE_STATEMENT, UNDER_WAY, FencedTerm, fence_gone
from fencehold.model.errors import Unavailable
from fencehold.ports.fence import Params, RemainingS

Connection = psycopg.Connection[Any]

GONE_HINT = "Leave commit and rollback to `term.transaction()`, and open a second one for a second transaction."


class BlockingTransaction:
    def __init__(self, connection: Connection, term: FencedTerm) -> None:
        self.connection = connection
        self._term = term

    def execute(self, statement: Any, params: Params = None) -> psycopg.Cursor[Any]:
        self._term.check(BEFORE_STATEMENT)
        if self.connection.info.transaction_status == TransactionStatus.IDLE:
            raise fence_gone(GONE_HINT)
        try:
            return self.connection.execute(statement, params)
        except psycopg.Error as error:
            if faults.is_connection_lost(error):
                self._term.check(UNDER_WAY)
                raise Unavailable(
                    f"The connection broke; nothing was committed: {faults.of_statement(error).message}",
                    code="connection_lost",
                ) from error
            raise

    def commit(self) -> None:
        self._term.check(BEFORE_COMMIT)
        must_not_have_failed(self.connection, "with")
        if self.connection.info.transaction_status == TransactionStatus.IDLE:
            raise fence_gone(GONE_HINT)
        began_s = time.monotonic()
        try:
            self.connection.commit()
        except psycopg.Error as error:
            if not faults.is_connection_lost(error):
                raise
            if self._term.remaining_s() > 0:
                raise faults.of_statement(error) from error
            raise faults.of_statement(faults.GivenUp(time.monotonic() - began_s)) from None


def must_not_have_failed(connection: Connection | wire.Connection, with_: str) -> None:
    """Raise Unavailable (transaction_failed) if a statement of the open transaction has failed.

    The server answers COMMIT with a ROLLBACK, and with no error, in such a transaction, so the caller would believe
    that its writes are stored. `with_` is the keyword of the caller's block (`with`, `async with`) for the hint.
    """
    if connection.info.transaction_status == TransactionStatus.INERROR:
        raise Unavailable(
            "A statement of this transaction had failed, so it cannot commit; nothing was written.",
            hint=f"Let the statement's error leave the `{with_} term.transaction()` block.",
            code="transaction_failed",
        )


@contextlib.contextmanager
def blocking_transaction(
    info: str, term: FencedTerm, fence: Callable[[Connection], None], committed: Callable[[Connection], None]
) -> Iterator[BlockingTransaction]:
    """Open a fenced transaction on a new connection, yield it, and commit it at the end of the block.

    `fence` checks the lease and locks it at the start; `committed` is called after the commit. When the term is over,
    the connection is cut, so a statement that hangs ends with an error. Raises LeaseLost if the term is already over
    at the start.
    """
    term.check()
    connection = connect(info, min(term.remaining_s(), wire.CONNECT_LIMIT_S))
    tx = BlockingTransaction(connection, term)
    with contextlib.closing(connection), _cut_when_over(connection, term.remaining_s):
        fence(connection)
        yield tx
        tx.commit()
        committed(connection)


def connect(info: str, limit_s: float) -> Connection:
    """Return a connection to the first usable server of the URL.

    The addresses are tried one after the other; each gets its share of the limit, and at least two seconds. Raises
    Unavailable or ConfigurationError if no server can be used.
    """
    places = hosts.in_order(info, hosts.places(info))
    errors: list[Exception] = []
    for place in places:
        try:
            found = hosts.in_order(info, hosts.addresses_sync(place))
        except OSError as error:
            errors.append(error)
            continue
        limit_each_s = hosts.share_s(limit_s, len(places) + len(found) - 1)
        for address in found:
            try:
                connection = psycopg.connect(hosts.at(info, address), connect_timeout=limit_each_s)
            except psycopg.Error as error:
                errors.append(error)
                if isinstance(error, psycopg.errors.ConnectionTimeout):
                    hosts.said_nothing(info, address)
            else:
                hosts.answered(info, address)
                return connection
    raise faults.of_connect(*errors, host_count=len(places))


@contextlib.contextmanager
def _cut_when_over(connection: Connection, remaining_s: RemainingS) -> Iterator[None]:
    """Shut the connection's socket down when the term is over while the block runs.

    The block then gets an error at once. psycopg itself cannot limit its wait for a server that is dead.
    """
    done = threading.Event()
    twin = socket.socket(fileno=os.dup(connection.fileno()))

    def guard() -> None:
        while not done.wait(max(0.01, remaining_s())):
            if remaining_s() <= 0:
                with contextlib.suppress(OSError):
                    twin.shutdown(socket.SHUT_RDWR)
                return

    thread = threading.Thread(target=guard, name="fencehold-tx-limit", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        twin.close()
