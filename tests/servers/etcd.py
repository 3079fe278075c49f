"""Three etcd members, the store in which Patroni keeps who is the primary."""

import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.servers.process import ServerProcess, free_port
from tests.servers.programs import require

MEMBERS = 3


class EtcdMember(ServerProcess):
    """One member; it answers when it is part of a cluster that has a leader."""

    name = "etcd"
    mark = "cluster"
    in_memory = True  # a slow disk would make the members elect a new leader in the middle of a test

    def __init__(self, number: int) -> None:
        self._program = require("etcd")
        super().__init__()
        self.number = number
        self.peer_port = free_port()
        self.cluster: Sequence[EtcdMember] = ()

    def command(self) -> Sequence[str | Path]:
        client, peer = f"http://127.0.0.1:{self.port}", self.peer_url
        members = ",".join(f"e{one.number}={one.peer_url}" for one in self.cluster)
        return [
            self._program, "--name", f"e{self.number}", "--data-dir", self.folder / "data", "--log-level", "warn",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", members, "--initial-cluster-token", f"t{self.cluster[0].port}",
            "--heartbeat-interval", "100", "--election-timeout", "1500",
        ]  # fmt: skip

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as answer:
                return b'"true"' in answer.read()
        except (urllib.error.URLError, OSError):
            return False


def etcd_cluster() -> list[EtcdMember]:
    """The members, not started: `begin` all of them, then `start` each, for none answers alone."""
    members = [EtcdMember(number) for number in range(1, MEMBERS + 1)]
    for member in members:
        member.cluster = members
    return members
