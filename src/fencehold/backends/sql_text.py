"""Statements from .sql files. Files name the default tables and `:parameters`; both are translated here, once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")
_TABLE = re.compile(r"(['\"])fencehold_leases\1|\bfencehold_(?:leases\w*|schema)\b")
_QUALIFIED = ("fencehold_leases", "fencehold_leases_guard", "fencehold_schema")

DEFAULT_TABLE = "fencehold_leases"


@dataclass(frozen=True)
class Step:
    """One numbered migration."""

    name: str
    sql: str


def named(sql: str) -> str:
    """`:name` parameters as they stand (sqlite3, SQLAlchemy)."""
    return sql


def pyformat(sql: str) -> str:
    """`:name` parameters as `%(name)s` (psycopg)."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%"))


class Statements:
    """The statements of one dialect for one lease table; attribute access by file name."""

    def __init__(self, package: str, table: str, style: Callable[[str], str] = named) -> None:
        self.table = table
        folder = resources.files(package) / "sql"
        raw = {f.name.removesuffix(".sql"): f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".sql")}
        self._named = {name: self._bound(_bare(text)) for name, text in raw.items()}
        self._styled = {name: style(text) for name, text in self._named.items()}
        migrations = folder / "migrations"
        steps = sorted(migrations.iterdir(), key=lambda f: f.name) if migrations.is_dir() else []
        self.steps = [Step(f.name.removesuffix(".sql"), self._bound(f.read_text("utf-8"))) for f in steps]

    def __getitem__(self, name: str) -> str:
        """In the driver's own parameter style."""
        return self._styled[name]

    def named(self, name: str) -> str:
        """With `:name` parameters."""
        return self._named[name]

    def script(self) -> str:
        """All steps as one text that a database's own shell takes."""
        head = f"-- fencehold: tables for {self.table}\n{self.named('steps_table')};\n"
        return head + "\n".join(f"\n-- step {s.name}\n{s.sql}{self._recorded(s)}" for s in self.steps)

    def _recorded(self, step: Step) -> str:
        values = {":component": f"'{self.table}'", ":step": f"'{step.name}'"}
        return re.sub(":component|:step", lambda m: values[m[0]], self.named("steps_record")) + ";\n"

    def _bound(self, sql: str) -> str:
        return _TABLE.sub(self._identifier, sql)

    def _identifier(self, match: re.Match[str]) -> str:
        schema, _, table = self.table.rpartition(".")
        word = match[0]
        if quote := match[1]:  # a channel's name, as text or as an identifier: one word, dot and all
            return f"{quote}{self.table}{quote}"
        name = word if word == "fencehold_schema" else table + word.removeprefix(DEFAULT_TABLE)
        return f'"{schema}"."{name}"' if schema and word in _QUALIFIED else f'"{name}"'


def _bare(text: str) -> str:
    """Without comments and the closing semicolon: a comment must not be searched for parameters."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().removesuffix(";")
