"""The axes of the fault matrix: the words that `@pytest.mark.fault(...)` may use, and how the page spells them."""

from __future__ import annotations

FAULTS: dict[str, str] = {
    "kill": "the process is killed (SIGKILL)",
    "freeze": "the process is frozen beyond its lease (SIGSTOP)",
    "blocked-loop": "the event loop is blocked",
    "server-kill": "the server is killed (kill -9)",
    "server-restart": "the server is restarted",
    "reset": "the connection is reset",
    "frozen-tcp": "the connection says nothing more",
    "slow": "statements are slow, locks are waited for",
    "disk-full": "the disk is full",
    "read-only": "the database is read-only",
    "client-clock": "the process's wall clock is set",
    "server-clock": "the server's wall clock is set",
    "failover-sync": "failover, synchronous standby",
    "failover-async": "failover that loses commits",
    "pgbouncer-session": "behind PgBouncer, session mode",
    "pgbouncer-transaction": "behind PgBouncer, transaction mode",
    "cancel": "cancelled at every await",
    "shutdown": "shut down in each state",
    "callbacks": "callbacks or handlers raise or hang",
    "fork": "the process forks",
}

CAPABILITIES: dict[str, str] = {
    "leader": "Leader leases",
    "fence": "Fenced writes",
    "outbox": "The outbox",
    "items": "Items",
    "lock": "Leaders by advisory or application lock",
    "service": "SubmissionManager",
}

DATABASES: dict[str, str] = {
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "sqlserver": "SQL Server",
    "cosmos": "Cosmos DB",
}
