"""The real HAProxy with deploy/haproxy.cfg as it stands, in front of three addresses."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.process import ServerProcess, free_port
from tests.servers.programs import ROOT, require

CONFIG = ROOT / "deploy" / "haproxy.cfg"
INSTANCES = 3


class HaProxy(ServerProcess):
    """`port` takes every instance in turn, `leader_port` only the leader; the instances need not be there yet."""

    name = "haproxy"
    mark = "haproxy"

    def __init__(self, ports: Sequence[int]) -> None:
        assert len(ports) == INSTANCES, "the configuration has three"
        self._program = require("haproxy")
        super().__init__()
        self.leader_port = free_port()
        self._instances = {f"SM_{n}": f"127.0.0.1:{port}" for n, port in enumerate(ports, 1)}
        self._config = self.folder / "haproxy.cfg"  # the server's account may not reach the source tree
        self._config.write_bytes(CONFIG.read_bytes())
        self._config.chmod(0o644)

    def command(self) -> Sequence[str | Path]:
        return [self._program, "-db", "-f", self._config]

    def environment(self) -> Mapping[str, str]:
        binds = {"SM_BIND": f"127.0.0.1:{self.port}", "SM_LEADER_BIND": f"127.0.0.1:{self.leader_port}"}
        return {**binds, **self._instances}

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def leader_url(self) -> str:
        return f"http://127.0.0.1:{self.leader_port}"
