"""The frame of a command-line program beside `fencehold`: errors, exit codes, signals, log lines, clean output.

Needs the extra `cli`.
"""

from fencehold.cli.exit_codes import BAD_CONFIGURATION, NO, OK
from fencehold.cli.failures import execute
from fencehold.cli.screen import clean, keep_secret, log_to_stderr, put
from fencehold.cli.signals import interruptible
from fencehold.cli.sql.command import lease_script
from fencehold.cli.worker.service import Stop, StopBy, serve

__all__ = [
    "BAD_CONFIGURATION",
    "NO",
    "OK",
    "Stop",
    "StopBy",
    "clean",
    "execute",
    "interruptible",
    "keep_secret",
    "lease_script",
    "log_to_stderr",
    "put",
    "serve",
]
