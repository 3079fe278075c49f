"""The exit codes of the command; the numbers are those of sysexits.h where it has a fitting one."""

from __future__ import annotations

from fencehold.model.errors import AlreadyLeased, ConfigurationError, FenceholdError, LeaseLost, WorkerStuck

OK = 0
NO = 1  # the answer is no: no such lease or event; doctor or demo found something
UNREACHABLE = 69
INTERNAL = 70
NO_OUTPUT = 74
NOT_ACQUIRED = 75
BAD_CONFIGURATION = 78
LEASE_LOST = 79
STUCK = 80  # a worker gave up: its process must be restarted
NOT_EXECUTABLE = 126
NOT_FOUND = 127
INTERRUPTED = 130


def of_error(error: FenceholdError) -> int:
    if isinstance(error, Refused):
        return error.exit_code
    codes = (
        (ConfigurationError, BAD_CONFIGURATION), (LeaseLost, LEASE_LOST), (WorkerStuck, STUCK),
        (AlreadyLeased, NOT_ACQUIRED), (FenceholdError, UNREACHABLE),
    )  # fmt: skip
    return next(code for kind, code in codes if isinstance(error, kind))


class Refused(FenceholdError):
    """The error of a command that refuses to go on by itself; it has the exit code to use."""

    def __init__(self, message: str, *, code: str, exit_code: int, hint: str = "") -> None:
        super().__init__(message, hint=hint, code=code)
        self.exit_code = exit_code
