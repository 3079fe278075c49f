"""An empty database of each kind for the service. Not every server that speaks T-SQL has what its schedule rests on."""

import functools

import pytest

from tests.conftest import not_run
from tests.servers.programs import Missing
from tests.servers.sqlserver import SqlServer

TRIED = ("CREATE TABLE #tried (id int, version rowversion)", "SELECT MIN_ACTIVE_ROWVERSION()")


def service_url(request: pytest.FixtureRequest) -> str:
    """As the fixture's parameter names it: sqlite, postgres or sqlserver."""
    if request.param != "sqlserver":
        return str(request.getfixturevalue(f"{request.param}_url"))
    server: SqlServer = request.getfixturevalue("mssql_server")
    must_have_row_versions(server, request.config)
    return server.emptied()


def must_have_row_versions(server: SqlServer, config: pytest.Config) -> None:
    """Else the tests of the service are not run there, and the last lines say why."""
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
