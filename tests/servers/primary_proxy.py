"""HAProxy in front of the nodes of a cluster: it follows Patroni's /primary and cuts the sessions of a demoted node."""

import socket
from collections.abc import Sequence
from pathlib import Path

from tests.servers.process import ServerProcess, hand_over
from tests.servers.programs import require

CONFIG = """\
global
    maxconn 300
defaults
    mode tcp
    timeout connect 2s
    timeout client 30m
    timeout server 30m
    timeout check 1s
listen primary
    bind 127.0.0.1:{port}
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
"""
SERVER = "    server n{number} 127.0.0.1:{port} check port {rest_port}\n"


class PrimaryProxy(ServerProcess):
    """One address that leads to the primary; for each node its number, its port and that of Patroni's REST API."""

    name = "pgproxy"
    mark = "haproxy"

    def __init__(self, nodes: Sequence[tuple[int, int, int]]) -> None:
        self._program = require("haproxy")
        super().__init__()
        servers = (SERVER.format(number=number, port=port, rest_port=rest) for number, port, rest in nodes)
        self._config = self.folder / "haproxy.cfg"
        self._config.write_text(CONFIG.format(port=self.port) + "".join(servers))
        hand_over(self._config)

    def command(self) -> Sequence[str | Path]:
        return [self._program, "-db", "-f", self._config]

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
