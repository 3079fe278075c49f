"""A server as a direct child of the test run, which dies with it however the run ends.

Started as `nobody` when we are root: PostgreSQL and PgBouncer refuse root. The kernel signals the child when the thread
that started it ends, so one thread that lives as long as the process starts them all.
"""

import atexit
import contextlib
import ctypes
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from tests.servers import marks

PR_SET_PDEATHSIG = 1
MEMORY = Path("/dev/shm")
ROOM_BYTES = 3 << 30
_prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-spawner")
_alive: "set[ServerProcess]" = set()

STAND_STILL_LIMIT_S = 2.0


class ServerFailed(Exception):
    """The server did not come up, or did not go down, in time; carries the end of its log."""


class ServerProcess:
    """One server: its folder, its log, its process tree. Subclasses say what to run and when it is ready."""

    name = "server"
    mark = ""  # which a test must have that starts one; see marks.py
    start_limit_s = 30.0
    stop_limit_s = 20.0
    stop_signal = signal.SIGTERM
    death_signal = signal.SIGKILL
    leaves_root_itself = False  # True when the command changes the account
    in_memory = False  # True: its folder is in memory where there is room, and no slow disk holds it up

    def __init__(self) -> None:
        self.folder = private_folder(self.name, roomy_memory() if self.in_memory else None)
        self.log = self.folder / "log"
        self.port = free_port()
        self._child: subprocess.Popen[bytes] | None = None
        _alive.add(self)

    # What a subclass provides

    def command(self) -> Sequence[str | os.PathLike[str]]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    def answers(self) -> bool:
        raise NotImplementedError

    # What a test calls

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} is not running"
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of a server that ended by itself; None while it runs, and after it was stopped or killed here."""
        return None if self._child is None else self._child.poll()

    def start(self) -> None:
        """Returns when the server answers; ServerFailed, with the end of its log, when it does not."""
        if self.running:
            return
        self.begin()
        give_up_at = time.monotonic() + self.start_limit_s
        while not self.answers():
            if not self.running or time.monotonic() > give_up_at:
                self.kill9()
                raise ServerFailed(f"{self.name} did not start:\n{self.log_tail()}")
            time.sleep(0.02)

    def begin(self) -> None:
        """Start it and do not wait: for a server that is not to answer."""
        if self.mark:
            marks.must_have(self.mark)
        account = None if self.leaves_root_itself else unprivileged()
        self._child = spawn(self.command(), self.log, self.environment(), self.death_signal, account)

    def stop(self) -> None:
        """A clean stop, within a limit; then kill -9."""
        if self._child is None:
            return
        self.thaw()
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(self.stop_signal)
        try:
            self._child.wait(self.stop_limit_s)
        except subprocess.TimeoutExpired:
            self.kill9()
        self._child = None

    def kill9(self) -> None:
        """The whole tree at once, as when the machine loses power; waited for, so that a start may follow at once."""
        if self._child is None:
            return
        self._stand_still()
        tree = self._tree()
        send(signal.SIGKILL, tree)
        self._child.wait(self.stop_limit_s)
        give_up_at = time.monotonic() + self.stop_limit_s
        while not all(map(is_dead, tree)) and time.monotonic() < give_up_at:
            time.sleep(0.005)
        self._child = None

    def _stand_still(self) -> None:
        """A server that forks while its children are listed would leave one behind, which outlives it for ever."""
        give_up_at = time.monotonic() + STAND_STILL_LIMIT_S
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(self.pid)
            send(signal.SIGSTOP, [top])
            while self.running and top.status() != psutil.STATUS_STOPPED and time.monotonic() < give_up_at:
                time.sleep(0.001)

    def restart(self) -> None:
        """A clean stop and a start on the same port."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP to every process: connections stay open and nothing answers."""
        send(signal.SIGSTOP, self._tree())

    def thaw(self) -> None:
        send(signal.SIGCONT, self._tree())

    def close(self) -> None:
        """Gone, with its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        _alive.discard(self)

    def log_tail(self, lines: int = 30) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"

    def _tree(self) -> list[psutil.Process]:
        if not self.running:
            return []
        try:
            top = psutil.Process(self.pid)
            return [top, *top.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def is_dead(process: psutil.Process) -> bool:
    """A zombie is: in a container whoever should reap it may look once a second, or never."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def send(signum: signal.Signals, tree: Sequence[psutil.Process]) -> None:
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signum)


def spawn(
    command: Sequence[str | os.PathLike[str]],
    log: Path,
    environment: Mapping[str, str],
    death_signal: signal.Signals,
    account: pwd.struct_passwd | None,
) -> subprocess.Popen[bytes]:
    return _spawner.submit(_spawn_here, command, log, environment, death_signal, account).result()


def _spawn_here(
    command: Sequence[str | os.PathLike[str]],
    log: Path,
    environment: Mapping[str, str],
    death_signal: signal.Signals,
    account: pwd.struct_passwd | None,
) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        hand_over(log)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=clean_environment(environment),
            start_new_session=True,
            preexec_fn=dies_with_us(death_signal),
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )


def run_as_server(command: Sequence[str | os.PathLike[str]], environment: Mapping[str, str], limit_s: float) -> None:
    """A one-off program (initdb) under the account the server will run as."""
    account = unprivileged()
    answer = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        cwd="/",
        env=clean_environment(environment),
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
    )
    if answer.returncode:
        raise ServerFailed(f"{command[0]} failed:\n{answer.stdout}{answer.stderr}")


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """None of the caller's PG* settings, which would steer a server we start."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PG") and key != "HOME"}
    return {**kept, "LC_ALL": "C", "TZ": "UTC", **extra}


def dies_with_us(signum: signal.Signals) -> Callable[[], None] | None:
    if _prctl is None:
        return None
    prctl, number = _prctl, int(signum)

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)

    return ask


def unprivileged() -> pwd.struct_passwd | None:
    """The account servers run under, or None to stay who we are."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def private_folder(name: str, base: str | None = None) -> Path:
    """Owned by the server's account; its path is short, because a Unix socket's may be 107 bytes long."""
    base = base or tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix=f"fencehold-{name}-", dir=base if len(base) < 50 else "/tmp"))
    hand_over(folder)
    return folder


def roomy_memory() -> str | None:
    """A file system in memory with room for several servers; None where there is none."""
    try:
        return str(MEMORY) if shutil.disk_usage(MEMORY).free > ROOM_BYTES else None
    except OSError:
        return None


def hand_over(*paths: Path) -> None:
    """These belong to the server's account from now on."""
    account = unprivileged()
    if account is not None:
        for path in paths:
            os.chown(path, account.pw_uid, account.pw_gid)


def readable_by_server(path: Path) -> bool:
    """True when the server's account can reach this path through every folder above it."""
    if unprivileged() is None:
        return os.access(path, os.R_OK)
    return all(place.stat().st_mode & 0o001 for place in [path, *path.parents] if place.is_dir())


def free_port() -> int:
    """Below the range the kernel gives to outgoing connections, so that it is still free after a restart."""
    for _ in range(200):
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerFailed("no free port between 20000 and 32000")


@atexit.register
def _close_all() -> None:
    for server in list(_alive):
        with contextlib.suppress(Exception):
            server.kill9()
            server.close()
