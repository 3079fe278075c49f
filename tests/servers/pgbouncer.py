"""A real PgBouncer in front of a server: the place where session state quietly stops being yours."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import psycopg

from tests.servers.postgres import SUPERUSER, PostgresServer
from tests.servers.process import ServerProcess, hand_over
from tests.servers.programs import require

CONFIG = """\
[databases]
* = host=127.0.0.1 port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = {mode}
default_pool_size = {pool_size}
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
server_login_retry = 1
"""


class PgBouncer(ServerProcess):
    """In `transaction` mode each transaction may get another server session; in `session` mode it stays."""

    name = "pgbouncer"
    mark = "pgbouncer"
    stop_signal = signal.SIGINT
    death_signal = signal.SIGKILL

    def __init__(
        self, server: PostgresServer, mode: Literal["transaction", "session"] = "transaction", *, pool_size: int = 20
    ) -> None:
        self._program = require("pgbouncer")
        super().__init__()
        users = self.folder / "users.txt"
        users.write_text(f'"{SUPERUSER}" ""\n')
        self._config = self.folder / "pgbouncer.ini"
        values = {"server_port": server.port, "port": self.port, "users": users, "mode": mode, "pool_size": pool_size}
        self._config.write_text(CONFIG.format(**values))
        hand_over(users, self._config)

    def command(self) -> Sequence[str | Path]:
        return [self._program, self._config]

    def answers(self) -> bool:
        try:
            with psycopg.connect(self.dsn(), connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def dsn(self, dbname: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{dbname}"
