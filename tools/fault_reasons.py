"""Why a cell of the fault matrix has no test.

The first reason that covers a cell counts; one that no cell needs is a mistake.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.fault_vocabulary import CAPABILITIES, DATABASES, FAULTS

Words = str | tuple[str, ...]
ANY = "*"


@dataclass(frozen=True)
class Reason:
    """`text`, for every cell whose fault, capability and database are among those named (`ANY`: all)."""

    faults: Words
    capabilities: Words
    databases: Words
    text: str

    def __post_init__(self) -> None:
        known = zip((self.faults, self.capabilities, self.databases), (FAULTS, CAPABILITIES, DATABASES), strict=True)
        for words, vocabulary in known:
            strange = [word for word in listed(words) if word != ANY and word not in vocabulary]
            if strange:
                raise ValueError(f"unknown words in a reason: {strange}")

    def covers(self, cell: tuple[str, str, str]) -> bool:
        named = (self.faults, self.capabilities, self.databases)
        return all(word in listed(words) or ANY in listed(words) for word, words in zip(cell, named, strict=True))


def listed(words: Words) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else words


SERVER = ("server-kill", "server-restart", "server-clock", "failover-sync", "failover-async")
NETWORK = ("reset", "frozen-tcp")
POOLER = ("pgbouncer-session", "pgbouncer-transaction")

NOT_OFFERED = "Not offered on Cosmos DB, which has no transactions beyond one partition."
NO_SERVER = "SQLite has no server and no network: the process itself opens the file."
NO_SQL_SERVER = "No SQL Server can be had here to kill, restart, fill or fail over; its tests need one that is given."
NO_COSMOS = "The service cannot be killed, filled or failed over by its users; the stand-in for it has no such state."

SAME_CODE = "The part that does this knows no database; it is run by the tests on the other ones."
ONLY_VERBS = "Only the statements are another database's; the conformance suite tries them where a server is given."
NO_CLOCK = "A lock has no expiry: no wall clock decides anything."
NOT_SLOW = "Cosmos DB has no locks to wait for; an answer that does not come is the row above."
LOCK_WRITES = "A lock writes nothing; its epoch is that of a lease (first table)."
NO_USER_CODE = "It runs no code of its users; a process that stands still is a frozen one."
SAME_CONNECTIONS = "Items and leases share their connections, and leases are tried (first table)."
CLIENT = ("kill", "freeze", "blocked-loop", "client-clock", "cancel", "shutdown", "callbacks", "fork")

REASONS: tuple[Reason, ...] = (
    Reason(ANY, "lock", "sqlite", "SQLite has no advisory locks."),
    Reason(ANY, "lock", "cosmos", "Cosmos DB has no advisory locks."),
    Reason(ANY, ("fence", "outbox", "service"), "cosmos", NOT_OFFERED),
    Reason(POOLER, ANY, ("sqlite", "sqlserver", "cosmos"), "PgBouncer serves PostgreSQL only."),
    Reason((*SERVER, *NETWORK), ANY, "sqlite", NO_SERVER),
    Reason((*SERVER, "disk-full", "read-only"), ANY, "sqlserver", NO_SQL_SERVER),
    Reason((*SERVER, "disk-full", "read-only"), ANY, "cosmos", NO_COSMOS),
    Reason(("client-clock", "server-clock"), "lock", ANY, NO_CLOCK),
    Reason(("disk-full", "read-only"), "lock", "postgres", LOCK_WRITES),
    Reason("read-only", "service", "sqlite", "It is an outage like a full disk, told by the same code."),
    Reason("fork", "service", ANY, "SubmissionManager never forks."),
    Reason("cancel", "service", ANY, "Its tasks are its own: nobody else can cancel one. A stop can (below)."),
    Reason("blocked-loop", "service", ANY, NO_USER_CODE),
    Reason("callbacks", "fence", ANY, "A fenced write has no callbacks."),
    Reason("shutdown", "fence", ANY, "A stop ends the term; its writes are then refused like those of a lost one."),
    Reason("slow", ("leader", "items"), "cosmos", NOT_SLOW),
    Reason(CLIENT, ANY, ("sqlserver", "cosmos"), SAME_CODE),
    Reason((*NETWORK, "slow"), ("leader", "outbox", "items"), "sqlserver", ONLY_VERBS),
    Reason("frozen-tcp", "items", "cosmos", SAME_CONNECTIONS),
)
