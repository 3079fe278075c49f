"""The tables as the first version made them: the first step of each set, and the record of it."""

import sqlite3
from contextlib import closing

import psycopg

from fencehold.backends.sql.statements import ITEMS, LEASES, OUTBOX, Statements, Topic, pyformat
from fencehold.backends.sqlite.schema import _STATEMENT_END

TABLES = {LEASES: "fencehold_leases", ITEMS: "fencehold_items", OUTBOX: "outbox"}


def first_of(topic: Topic, package: str) -> Statements:
    return Statements(package, TABLES[topic], pyformat if package.endswith("postgres") else str, topic)


def make_on_postgres(url: str) -> None:
    with psycopg.connect(url) as pg:
        for topic in TABLES:
            statements = first_of(topic, "fencehold.backends.postgres")
            pg.execute(statements["steps_table"].encode())
            step = statements.steps[0]
            pg.execute(step.sql.encode())
            pg.execute(statements["steps_record"].encode(), {"component": statements.table, "step": step.name})


def make_on_sqlite(path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        for topic in TABLES:
            statements = first_of(topic, "fencehold.backends.sqlite")
            connection.execute(statements["steps_table"])
            step = statements.steps[0]
            for statement in _STATEMENT_END.split(step.sql):
                connection.execute(statement)
            connection.execute(statements["steps_record"], {"component": statements.table, "step": step.name})


def make(url: str) -> None:
    if url.startswith("sqlite:"):
        make_on_sqlite(url.removeprefix("sqlite:///"))
    else:
        make_on_postgres(url)
