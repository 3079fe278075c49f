"""Django's own connection, as a Django program has it."""

import subprocess
import sys

from tests.servers.programs import ROOT

ATOMIC = "Do it, and your own writes, inside `with transaction.atomic():`, in the same thread."
SAID = f"""before it is open: bad_connection Use it inside `with transaction.atomic():`, in the same thread.
outside atomic: add_outside_transaction {ATOMIC}
inside: done
stored: ['kept', 'kept with a savepoint']
fence outside: fence_outside_transaction {ATOMIC}
fence inside: done
"""


def test_tx_and_fence_take_djangos_connection_inside_atomic(pg_or_sqlite_url: str) -> None:
    command = [sys.executable, "-m", "tests.fencehold.backends.sql.django_program", pg_or_sqlite_url]
    told = subprocess.run(command, capture_output=True, text=True, timeout=50, cwd=ROOT, check=False)
    assert (told.stdout, told.returncode) == (SAID, 0), told.stderr
