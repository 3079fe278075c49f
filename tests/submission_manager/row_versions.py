"""Whether a server that speaks T-SQL has what the schedule rests on; else the service's tests there are not run."""

import functools

import pytest

from tests.conftest import not_run
from tests.servers.programs import Missing
from tests.servers.sqlserver import SqlServer

TRIED = ("CREATE TABLE #tried (id int, version rowversion)", "SELECT MIN_ACTIVE_ROWVERSION()")


def must_have_row_versions(server: SqlServer, config: pytest.Config) -> None:
    why_not = _why_not(server)
    if why_not is not None:
        not_run(config, Missing("SubmissionManager on this T-SQL server", why_not))


@functools.cache
def _why_not(server: SqlServer) -> str | None:
    with server.connected() as connection:
        for statement in TRIED:
            try:
                connection.cursor().execute(statement)
            except Exception as error:  # whatever it says is the reason
                return str(error)
    return None
