"""The command line: its commands, and how every error is printed."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from importlib import import_module

import click

import fencehold
from fencehold.cli import exit_codes
from fencehold.cli.commands import Commands
from fencehold.cli.failures import as_ours, executed, is_bare
from fencehold.cli.screen import Screen
from fencehold.cli.setup import Setup, options

IMPORTS = {
    "demo": lambda: import_module("fencehold.cli.demo.command").demo,
    "doctor": lambda: import_module("fencehold.cli.doctor.command").doctor,
    "init": lambda: import_module("fencehold.cli.init").init,
    "items": lambda: import_module("fencehold.cli.items.group").items,
    "ls": lambda: import_module("fencehold.cli.leases").ls,
    "outbox": lambda: import_module("fencehold.cli.outbox.group").outbox,
    "reaper": lambda: import_module("fencehold.cli.worker.reaper").reaper,
    "run": lambda: import_module("fencehold.cli.run.command").run,
    "show": lambda: import_module("fencehold.cli.leases").show,
    "sql": lambda: import_module("fencehold.cli.sql.command").sql,
    "step-down": lambda: import_module("fencehold.cli.step_down").step_down,
    "verify": lambda: import_module("fencehold.cli.verify.command").verify,
    "worker": lambda: import_module("fencehold.cli.worker.command").worker,
}

EPILOG = """\b
Exit codes, the same for every command
(but `run` ends with that of its CMD once it has run):
  0    done
  1    the answer is no (no such lease, event or item; events left alone,
       a lease unbroken; doctor, demo or verify found something; worker or
       reaper did not end in time)
  69   the database cannot be reached, takes no writes, or gave no answer
  70   a fault in fencehold itself; FENCEHOLD_DEBUG=1 shows where
  74   the answer could not be written to stdout
  75   the lease was not acquired (run), or not let go (step-down), in time
  78   a mistake: options, names, durations, URL, refused login,
       missing driver, database, tables or rights
  79   the lease was lost while the command ran (run)
  80   it gave up, because it could handle nothing any more
       (worker --give-up-after)
  126  the command of run cannot be executed
  127  the command of run was not found
  130  interrupted by Ctrl-C; worker and reaper: stopped at once by a second
       signal
\b
Example:
  export FENCEHOLD_DSN=sqlite:///app.db
  fencehold init
  fencehold run nightly -- ./backup.sh
  fencehold ls
  fencehold init --outbox outbox
  fencehold worker app:handlers
  fencehold doctor
"""


@click.group(
    cls=Commands, imports=IMPORTS, epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)  # fmt: skip
@click.version_option(fencehold.__version__, prog_name="fencehold")
@options
@click.pass_context
def cli(context: click.Context, dsn: str | None, table: str | None, output: str | None) -> None:
    """Leases on the database you already have: who leads, commands that run only while they lead, an outbox, and items.

    The database is named by the variable FENCEHOLD_DSN, for example sqlite:///app.db,
    postgresql://user@host/db or mssql://user@host/db. `fencehold demo` needs none.
    """
    context.obj = Setup().over(dsn, table, output)


def execute(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code.

    An error is printed on stderr as one message with code and hint.
    """
    return executed(cli, arguments, "fencehold", lambda error: _failed(error, _wants_json(arguments)))


def _failed(error: Exception, as_json: bool) -> int:
    if is_bare(error) and not as_json:
        print(error.format_message(), file=sys.stderr)
    ours = as_ours(error, "fencehold")
    Screen("json" if as_json else "table").error(ours)
    return exit_codes.of_error(ours)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Return whether JSON output was asked for, even if the command line is invalid.

    What follows `--` is ignored: it belongs to the command that the user runs.
    """
    ours = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    joined = {"-ojson", "--output=json"} & set(ours)
    return bool(joined) or any(pair in (("-o", "json"), ("--output", "json")) for pair in itertools.pairwise(ours))
