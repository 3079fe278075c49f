"""The least rights that programs need on the tables, as text after the script that creates them."""

from __future__ import annotations

from collections.abc import Mapping

LEASES = """\
-- The least rights for the programs that use the table (replace app by their role). Never grant DELETE: a deleted row
-- starts again at epoch 1, and a stale writer could pass the fence. SELECT on fencehold_schema lets them call init,
-- which finds everything up to date.
{schema}-- GRANT SELECT, INSERT, UPDATE ON {table} TO app;
"""
STEPS = "-- GRANT SELECT ON {steps} TO app;\n"
OUTBOX = """\
-- Of the outbox, for producers, workers and reapers; whoever runs `fencehold outbox purge` needs DELETE as well, on it
-- and on {consumed}.
{schema}-- GRANT SELECT, INSERT, UPDATE ON {table} TO app;
-- GRANT SELECT, INSERT, UPDATE ON {reaper} TO app;
-- GRANT SELECT, INSERT ON {consumed} TO app;
"""
ITEMS = """\
-- Of the items of all kinds. DELETE is safe here: the tokens of an item that is deleted and put again go on rising.
{schema}-- GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO app;
"""

#: For each dialect: the rights on leases, items and an outbox.
RIGHTS: Mapping[str, Mapping[str, str]] = {
    "postgresql": {
        "leases": LEASES + STEPS,
        "items": ITEMS + "-- GRANT USAGE ON SEQUENCE {token} TO app;\n" + STEPS,
        "outbox": OUTBOX + STEPS,
    },
    "mssql": {
        "leases": LEASES
        + "-- GRANT SELECT, INSERT, UPDATE ON {terms} TO app;\n"
        + STEPS
        + "-- Nothing else: sp_getapplock, by which a takeover and a fenced write keep apart, is open to every user.\n",
        "items": ITEMS + "-- GRANT UPDATE ON {token} TO app;\n" + STEPS,  # NEXT VALUE FOR needs it
        "outbox": OUTBOX + STEPS,
    },
}
SUFFIXES = ("", "_reaper", "_consumed", "_token", "_terms")


def rights(dialect: str, topic: str, table: str) -> str:
    """The GRANTs as SQL comments; each can be run without its two dashes."""
    schema, _, name = table.rpartition(".")
    quoted = _in_brackets if dialect == "mssql" else _in_quotes
    named = {suffix.lstrip("_") or "table": quoted(schema, name + suffix) for suffix in SUFFIXES}
    # On SQL Server no right on the schema itself is needed.
    usage = f'-- GRANT USAGE ON SCHEMA "{schema}" TO app;\n' if schema and dialect == "postgresql" else ""
    named |= {"schema": usage, "steps": quoted(schema, "fencehold_schema")}
    return RIGHTS[dialect][topic].format(**named)


def _in_quotes(schema: str, name: str) -> str:
    return f'"{schema}"."{name}"' if schema else f'"{name}"'


def _in_brackets(schema: str, name: str) -> str:
    """The name in brackets: sqlcmd reads a name in quotes as a text by default."""
    return f"[{schema}].[{name}]" if schema else f"[{name}]"
