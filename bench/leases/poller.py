"""What a hand-over is compared with: plain psycopg that tries to acquire once a second, as a process.

python -m bench.leases.poller URL NAME; the same words as bench.leases.candidate, and the same statements.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import psycopg

from bench.leases.statements import STATEMENTS, acquire_params, release_params
from bench.telling import now_s, tell

EVERY_S = 1.0


def seek(connection: psycopg.Connection[Any], name: str, holder: str) -> int:
    """Poll until granted; the epoch."""
    told = False
    while True:
        row = connection.execute(STATEMENTS["acquire"], acquire_params(name, holder)).fetchone()
        if row is not None and row[0] == "granted":
            tell("leading", at_s=now_s())
            return int(row[3])
        if not told:
            told = True
            tell("following")
        time.sleep(EVERY_S)


def main() -> None:
    url, name, holder = sys.argv[1:]
    epoch = 0
    with psycopg.connect(url, autocommit=True) as connection:
        tell("ready")
        for line in sys.stdin:
            if line.strip() == "follow":
                epoch = seek(connection, name, holder)
            elif line.strip() == "release":
                called_s = now_s()
                connection.execute(STATEMENTS["release"], release_params(name, holder, epoch))
                tell("released", called_s=called_s, done_s=now_s())


if __name__ == "__main__":
    main()
