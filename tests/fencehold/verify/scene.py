"""`fencehold verify` as a process, and what it may have left behind."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.tidy.tree import ROOT

#: Its faults, the time it may go on for, the drain, and a machine on which everything takes long.
LIMIT_S = 150.0


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def error(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.err)["error"]
        return found

    def invariant(self, name: str) -> dict[str, Any]:
        return next(one for one in self.json["invariants"] if one["name"] == name)

    @property
    def broken(self) -> list[str]:
        return [one["name"] for one in self.json["invariants"] if one["held"] is False]


def verify(*arguments: str, program: Sequence[str] = ("-m", "fencehold.cli")) -> Ran:
    command = [sys.executable, *program, "verify", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=LIMIT_S, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fencehold.cli", "verify", *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )


def until_a_fault(child: "subprocess.Popen[str]") -> None:
    """Return when it says that it does the first one."""
    assert child.stderr is not None
    for line in child.stderr:
        if " s  " in line:
            return
    raise AssertionError("it ended without a fault")


def tables(url: str) -> list[tuple[str, ...]]:
    """Everything in the database that is not the server's own, schemas included."""
    with psycopg.connect(url, connect_timeout=10) as connection:
        found = connection.execute(
            "SELECT nspname, relname FROM pg_namespace AS n LEFT JOIN pg_class AS c ON c.relnamespace = n.oid"
            " WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' ORDER BY 1, 2"
        ).fetchall()
    return [tuple(row) for row in found]


def folder(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in path.iterdir()}
