"""One PostgreSQL under Patroni: a node of a cluster that a test may kill, freeze and bring back."""

import contextlib
import importlib.util
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.servers.postgres import SUPERUSER, PostgresServer, binaries_of, library_path, reachable
from tests.servers.process import (
    ServerFailed,
    ServerProcess,
    free_port,
    hand_over,
    is_dead,
    readable_by_server,
    run_as_server,
    send,
    unprivileged,
)
from tests.servers.programs import Missing, reason, require
from tests.servers.sweeper import end_all, working_in

REST_LIMIT_S = 3.0
FREEZE_LIMIT_S = 10.0
COPY_LIMIT_S = 300.0
QUIT_LIMIT_S = 5.0
LOOP_WAIT_S, RETRY_TIMEOUT_S, TTL_S = (
    1,
    9,
    20,
)  # Patroni allows no shorter ttl, and ttl >= loop_wait + 2 * retry_timeout

#: What the nodes agree on; Patroni writes it to etcd when the cluster is born. Failing over at once after a crash
#: (primary_start_timeout: 0) keeps tests short; a node that cannot be rewound is made anew.
SHARED: dict[str, Any] = {
    "ttl": TTL_S,
    "loop_wait": LOOP_WAIT_S,
    "retry_timeout": RETRY_TIMEOUT_S,
    "maximum_lag_on_failover": 16 * 1024 * 1024,
    "primary_start_timeout": 0,
    "check_timeline": True,
    "postgresql": {
        "use_pg_rewind": True,
        "use_slots": True,
        "remove_data_directory_on_rewind_failure": True,
        "remove_data_directory_on_diverged_timelines": True,
        "parameters": {
            "max_connections": 150,
            "shared_buffers": "16MB",
            "wal_log_hints": "on",
            "wal_keep_size": "128MB",
            "wal_retrieve_retry_interval": "100ms",
            "dynamic_shared_memory_type": "mmap",  # in the data folder: nothing is left by a killed node
        },
    },
}
TRUST = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]


class PatroniNode(ServerProcess):
    """Patroni and its PostgreSQL, in one folder. `running` is about Patroni; each method says which one it means."""

    name = "node"
    mark = "cluster"
    in_memory = True
    stop_limit_s = 30.0

    def __init__(self, number: int, scope: str, etcd_ports: Sequence[int], *, synchronous: bool) -> None:
        if importlib.util.find_spec("patroni") is None:
            raise Missing("patroni", reason("patroni"))
        self._privileges = reads_this_python()
        self.leaves_root_itself = bool(self._privileges)
        self._binaries = binaries_of()
        super().__init__()
        self.number = number
        self.rest_port = free_port()
        self.data = self.folder / "data"
        self._bin, self._lib = reachable(self._binaries.folder, self._binaries.libraries)
        self._config = self.folder / "patroni.yml"
        hosts = [f"127.0.0.1:{port}" for port in etcd_ports]
        self._config.write_text(json.dumps(self._settings(scope, hosts, synchronous=synchronous)))
        hand_over(self._config)

    def __repr__(self) -> str:
        return f"n{self.number}"

    def _settings(self, scope: str, hosts: Sequence[str], *, synchronous: bool) -> dict[str, Any]:
        rest, own = f"127.0.0.1:{self.rest_port}", f"127.0.0.1:{self.port}"
        logins = {
            kind: {"username": name, "password": "x"}
            for kind, name in (("superuser", SUPERUSER), ("replication", "replicator"), ("rewind", "rewinder"))
        }
        initdb: list[Any] = [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}, "no-sync"]
        return {
            "scope": scope,
            "name": f"n{self.number}",
            "restapi": {"listen": rest, "connect_address": rest},
            "etcd3": {"hosts": list(hosts)},
            "bootstrap": {"dcs": {**SHARED, "synchronous_mode": synchronous}, "initdb": initdb},
            "postgresql": {
                "listen": own,
                "connect_address": own,
                "data_dir": str(self.data),
                "bin_dir": str(self._bin),
                "pgpass": str(self.folder / "pgpass"),
                "authentication": logins,
                "parameters": {"unix_socket_directories": str(self.folder)},
                "pg_hba": TRUST,
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
            },
        }

    # As a ServerProcess

    def command(self) -> Sequence[str | Path]:
        return [*self._privileges, sys.executable, "-m", "patroni", self._config]

    def environment(self) -> Mapping[str, str]:
        return {**library_path(self._lib), "HOME": str(self.folder)}

    def answers(self) -> bool:
        return bool(self.rest().get("state"))

    def close(self) -> None:
        """PostgreSQL too, at once: what it held is thrown away. It frees its shared memory if it still can."""
        if self.running:
            send(signal.SIGKILL, [psutil.Process(self.pid)])
        first = self.postmaster
        if first is not None:
            send(signal.SIGCONT, [first, *first.children(recursive=True)])
            send(signal.SIGQUIT, [first])
            with contextlib.suppress(ServerFailed):
                wait_until_dead([first], f"{self!r} at its end", QUIT_LIMIT_S)
        self.power_off()
        super().close()

    def _tree(self) -> list[psutil.Process]:
        return working_in(self.folder)

    # What a test asks

    def rest(
        self, path: str = "/patroni", method: str = "GET", body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """What Patroni answers; {} when it does not."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.rest_port}{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=REST_LIMIT_S if body is None else 30.0) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            text = error.read()
        except (urllib.error.URLError, OSError):
            return {}
        try:
            found = json.loads(text)
        except ValueError:
            return {"said": text.decode(errors="replace")}
        return found if isinstance(found, dict) else {"said": found}

    @property
    def says_primary(self) -> bool:
        """True when this Patroni says that its PostgreSQL is the primary and runs. A frozen one says nothing."""
        said = self.rest()
        return said.get("role") in ("primary", "master") and said.get("state") == "running"

    def url(self, dbname: str = "postgres") -> str:
        """This node alone, whatever its role."""
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{dbname}"

    def one(self, query: str, dbname: str = "postgres") -> Any:
        """The first column of the first row that this node answers."""
        with psycopg.connect(self.url(dbname), autocommit=True, connect_timeout=5) as conn:
            row = conn.execute(query).fetchone()
        return row[0] if row else None

    @property
    def postmaster(self) -> psutil.Process | None:
        """PostgreSQL's first process; None when it does not run."""
        try:
            found = psutil.Process(int((self.data / "postmaster.pid").read_text().split()[0]))
            return found if not is_dead(found) and Path(found.cwd()) == self.data else None
        except (OSError, IndexError, ValueError, psutil.Error):
            return None

    # What a test does to it

    def kill_postmaster(self) -> None:
        """kill -9 to PostgreSQL's first process, and to those that are frozen and could not notice; Patroni lives."""
        first = self.postmaster
        if first is None:
            raise ServerFailed(f"{self!r} has no postmaster:\n{self.log_tail()}")
        others = first.children(recursive=True)
        frozen = [process for process in others if state_of(process) == psutil.STATUS_STOPPED]
        send(signal.SIGKILL, [first, *frozen])
        wait_until_dead([first, *others], f"{self!r} after its postmaster was killed")

    def power_off(self) -> None:
        """Every process of this node at once, as when the machine loses power."""
        send(signal.SIGKILL, self._tree())
        end_all(self.folder)
        if self._child is not None:
            self._child.wait(self.stop_limit_s)
            self._child = None

    def power_on(self) -> None:
        """Patroni again, on the same data; returns when it answers."""
        self.start()

    def freeze_walsenders(self) -> None:
        """From here on no standby gets anything; returns when every one of them stands still."""
        found = self.one("SELECT array_agg(pid) FROM pg_stat_replication")
        if not found:
            raise ServerFailed(f"{self!r} has no walsender to freeze:\n{self.log_tail()}")
        freeze_all([psutil.Process(pid) for pid in found])

    def freeze_patroni(self) -> None:
        """PostgreSQL runs on without anybody who could demote it."""
        freeze_all([psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)])

    def thaw_patroni(self) -> None:
        send(signal.SIGCONT, [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)])

    @contextlib.contextmanager
    def alone(self) -> Iterator[PostgresServer]:
        """A copy of this node's data as it is now, read by a server of its own that belongs to no cluster.

        PostgreSQL of this node must not run: the copy is recovered from its WAL, as after a power failure.
        """
        assert self.postmaster is None, f"{self!r} still runs: a copy of its data would be torn"
        server = PostgresServer.of(self._binaries)
        try:
            copy = server.folder / "data"
            run_as_server(["cp", "-a", "--reflink=auto", self.data, copy], {}, COPY_LIMIT_S)
            for name in ("standby.signal", "recovery.signal", "postmaster.pid"):
                (copy / name).unlink(missing_ok=True)
            server.settings |= {"synchronous_standby_names": "", "hot_standby": "off"}
            yield server
        finally:
            server.close()


def reads_this_python() -> list[str | Path]:
    """How root becomes the server's account and still reaches a Python in root's home; [] where that is not needed."""
    account = unprivileged()
    places = (Path(sys.executable).resolve(), Path(sys.prefix), Path(sys.base_prefix))
    if account is None or all(map(readable_by_server, places)):
        return []
    who = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--pdeathsig=KILL"]
    keeps = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    command: list[str | Path] = [require("setpriv"), *who, *keeps]
    tried = subprocess.run(
        [*command, sys.executable, "-c", ""], capture_output=True, text=True, timeout=30, check=False
    )
    if tried.returncode:
        said = tried.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise Missing("patroni", f"{account.pw_name} cannot run {sys.executable}: {said[0]}")
    return command


def freeze_all(processes: Sequence[psutil.Process]) -> None:
    """SIGSTOP, and wait until every thread of every process stands still."""
    send(signal.SIGSTOP, processes)
    give_up_at = time.monotonic() + FREEZE_LIMIT_S
    while not all(map(stands_still, processes)):
        if time.monotonic() > give_up_at:
            raise ServerFailed(f"not frozen after {FREEZE_LIMIT_S} s: {processes}")
        time.sleep(0.005)


def stands_still(process: psutil.Process) -> bool:
    states = []
    for task in Path(f"/proc/{process.pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            states.append(task.read_text().rpartition(")")[2].split()[0])
    return all(state in "TZ" for state in states)


def state_of(process: psutil.Process) -> str | None:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return None


def wait_until_dead(processes: Sequence[psutil.Process], what: str, limit_s: float = FREEZE_LIMIT_S) -> None:
    give_up_at = time.monotonic() + limit_s
    while alive := [one for one in processes if not is_dead(one)]:
        if time.monotonic() > give_up_at:
            raise ServerFailed(f"{what}: still there after {limit_s} s: {alive}")
        time.sleep(0.005)
