"""`fencehold verify` as a person starts it: the database from the environment, counts that move, bounds that hold."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fencehold.verify.plan import CONNECTIONS_PER_CONTENDER, EVENTS_MAX, EXTRA_S, LEASES, WRITES_MAX, plan
from fencehold.verify.scratch.postgres import SPARE_CONNECTIONS
from tests.fencehold.verify.scene import LIMIT_S, folder, verify
from tests.tidy.tree import ROOT

CONTENDERS = 3
pytestmark = pytest.mark.limit(200)

COUNT = """
import sys, psycopg
with psycopg.connect(sys.argv[1]) as pg:
    print(*pg.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()").fetchone())
"""


def everything(terminal: int) -> str:
    """What comes on a terminal until nobody has its other end any more."""
    seen = b""
    with suppress(OSError), open(terminal, "rb", buffering=0) as screen:
        while more := screen.read(65536):
            seen += more
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())


def test_on_a_terminal_a_line_of_counts_moves_and_the_table_goes_to_stdout(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "FENCEHOLD_DSN": f"sqlite:///{tmp_path}/app.db", "COLUMNS": "160", "TERM": "xterm"}
    command = [sys.executable, "-m", "fencehold.cli", "verify", "--for", "3s", "--contenders", str(CONTENDERS)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as child:
        os.close(theirs)
        seen = everything(ours)
        out, _ = child.communicate(timeout=LIMIT_S)
    counts = set(re.findall(r"\d+ s: (\d+ faults, \d+ terms, \d+ writes, \d+ events)", seen))
    assert len(counts) > 1, seen
    assert (child.returncode, "no-stale-fenced-write" in out) == (0, True), out + seen
    assert folder(tmp_path) == {}


@pytest.mark.long
def test_the_contenders_open_no_more_connections_than_is_said(postgres_url: str, tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(COUNT)
    hook = f"{sys.executable} {tmp_path}/count.py '{postgres_url}'"
    ran = verify(postgres_url, "--for", "6s", "--contenders", str(CONTENDERS), "--pause-hook", hook, "-o", "json")
    [counted] = [int(one["output"]) for one in ran.json["hooks"]]
    # More than one for each, or they were not counted; the last one is the hook's own.
    assert CONTENDERS < counted <= CONTENDERS * CONNECTIONS_PER_CONTENDER + SPARE_CONNECTIONS + 1


@pytest.mark.parametrize("lasts", ["3s", "60s", "250s", "1h"])
def test_rows_are_bounded_however_long_a_run_lasts(lasts: str) -> None:
    made = plan("sqlite:///a.db", lasts=lasts)
    assert len(LEASES) * (made.for_s + EXTRA_S) / made.write_every_s <= WRITES_MAX
    assert made.events_max <= EVENTS_MAX
