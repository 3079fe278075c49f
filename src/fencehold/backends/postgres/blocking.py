"""Fenced transactions for programs without an event loop: in the calling thread, with the same hard limit."""

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
from fencehold.model.election.leases import TermKey
from fencehold.model.errors import ConfigurationError, LeaseLost, Unavailable
from fencehold.ports.fence import Params, RemainingS

Connection = psycopg.Connection[Any]


def lost(key: TermKey, why: str) -> LeaseLost:
    return LeaseLost(f"Lease {key.name!r} epoch {key.epoch}: {why}.", name=key.name, epoch=key.epoch)


def fence_gone() -> ConfigurationError:
    return ConfigurationError(
        "The fenced transaction was ended inside its block; what follows would not be fenced.",
        hint="Leave commit and rollback to `term.transaction()`, and open a second one for a second transaction.",
        code="fence_gone",
    )


class BlockingTransaction:
    def __init__(self, connection: Connection, key: TermKey, remaining_s: RemainingS) -> None:
        self.connection = connection
        self._key = key
        self._remaining_s = remaining_s

    def execute(self, statement: Any, params: Params = None) -> psycopg.Cursor[Any]:
        self.check("the term ended before this statement was sent")
        if self.connection.info.transaction_status == TransactionStatus.IDLE:
            raise fence_gone()
        try:
            return self.connection.execute(statement, params)
        except psycopg.Error as error:
            if faults.is_connection_lost(error):
                self.check("the term ended while a statement was under way; nothing was committed")
                raise Unavailable(
                    f"The connection broke; nothing was committed: {faults.of_statement(error).message}",
                    code="connection_lost",
                ) from error
            raise

    def commit(self) -> None:
        self.check("the term ended before the commit")
        if self.connection.info.transaction_status == TransactionStatus.INERROR:
            # The server answers such a COMMIT with a ROLLBACK and no error.
            raise Unavailable(
                "A statement of this transaction had failed, so it cannot commit; nothing was written.",
                hint="Let the statement's error leave the `with term.transaction()` block.",
                code="transaction_failed",
            )
        if self.connection.info.transaction_status == TransactionStatus.IDLE:
            raise fence_gone()
        began_s = time.monotonic()
        try:
            self.connection.commit()
        except psycopg.Error as error:
            if not faults.is_connection_lost(error):
                raise
            if self._remaining_s() > 0:
                raise faults.of_statement(error) from error
            raise faults.of_statement(faults.GivenUp(time.monotonic() - began_s)) from None

    def check(self, why: str) -> None:
        if self._remaining_s() <= 0:
            raise lost(self._key, why)


@contextlib.contextmanager
def blocking_transaction(
    info: str,
    fence: Callable[[Connection, TermKey], None],
    key: TermKey,
    remaining_s: RemainingS,
    committed: Callable[[Connection], None],
) -> Iterator[BlockingTransaction]:
    """Commits only while the epoch holds. A connection that hangs is cut when the term's own time is over.

    Raises LeaseLost if the term is over at the start.
    """
    if remaining_s() <= 0:
        raise lost(key, "the term is over")
    connection = connect(info, min(remaining_s(), wire.CONNECT_LIMIT_S))
    tx = BlockingTransaction(connection, key, remaining_s)
    with contextlib.closing(connection), _cut_when_over(connection, remaining_s):
        fence(connection, key)
        yield tx
        tx.commit()
        committed(connection)


def connect(info: str, limit_s: float) -> Connection:
    """Return a connection to the first usable server; each gets its share of the limit, and at least two seconds."""
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
    """Shut the socket down when the term is over: psycopg's own waiting cannot be limited if the server is dead."""
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
