"""The demo's processes: instances, gateway, load balancer. They all end with the demo, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import os
import random
import shutil
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

import fencehold
from fencehold import ConfigurationError, Unavailable
from fencehold.service import scheme
from submission_manager.demo.load import http_client

HOST = "127.0.0.1"
PR_SET_PDEATHSIG = 1
UP_LIMIT_S = 30.0
ASK_LIMIT_S = 1.0
LOOK_EVERY_S = 0.05
PROGRAM = (sys.executable, "-m", "submission_manager.cli")
SBIN = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])

_prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None


def _die_with_the_demo() -> None:
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def free_port() -> int:
    """Return a free port below the range of outgoing connections, so that it is still free a moment later.

    Raises Unavailable if none is found.
    """
    for _ in range(200):
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return port
    raise Unavailable("No free port was found between 20000 and 32000.", code="no_port")


@asynccontextmanager
async def a_place(given: str | None, folder: Path) -> AsyncIterator[str]:
    """Yield a URL for one run: a file in `folder`, or a new schema in the given database, dropped afterwards."""
    if given is None:
        yield f"sqlite:///{folder / 'demo.db'}"
        return
    if scheme(given) != "postgresql":
        raise ConfigurationError(
            "The demo's own SQLite file needs no URL; for another database give a postgresql:// URL.", code="bad_url"
        )
    fencehold.connect(given)  # raises for a bad URL, without showing its password
    from submission_manager.stores.own_schema import own_schema

    async with own_schema(given) as url:
        yield url


def haproxy() -> str | None:
    """Return the path of HAProxy, or None. This also searches sbin, which an ordinary PATH leaves out."""
    return shutil.which("haproxy", path=SBIN)


def haproxy_config() -> Path | None:
    """Return the path of the HAProxy configuration, or None if there is none.

    The file is in the installed package, or in deploy/ when the program runs from the sources.
    """
    here = Path(__file__).resolve()
    places = (here.parent / "haproxy.cfg", here.parents[2] / "deploy" / "haproxy.cfg")
    return next((place for place in places if place.is_file()), None)


@dataclass
class Instance:
    holder_id: str
    port: int
    process: Process
    is_frozen: bool = False
    is_ready: bool = False

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    async def freeze(self) -> None:
        """Stop the process with SIGSTOP; returns when all its threads have stopped.

        A thread in a system call finishes that call first, and perhaps takes a lock in it.
        """
        self.process.send_signal(signal.SIGSTOP)
        self.is_frozen = True
        await asyncio.to_thread(os.waitid, os.P_PID, self.process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.is_frozen = False

    async def answers(self, path: str) -> bool:
        """Return whether a GET of `path` is answered with 200 within ASK_LIMIT_S."""
        try:
            async with asyncio.timeout(ASK_LIMIT_S), http_client(f"http://{HOST}:{self.port}") as client:
                return (await client.get(path)).status_code == 200
        except (httpx.HTTPError, TimeoutError):
            return False


@dataclass
class Stage:
    """Starts and ends the demo's processes; `settings` are the SM_* variables of every instance."""

    folder: Path
    settings: Mapping[str, str]
    instances: list[Instance] = field(default_factory=list)
    _processes: list[Process] = field(default_factory=list)
    _named: int = 0

    async def spawn(self, *command: str, **variables: str) -> Process:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SM_")}
        with (self.folder / "stderr.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=DEVNULL, stderr=log, env=kept | variables,
                start_new_session=True,  # Ctrl-C reaches only the demo, which then ends all processes
                preexec_fn=_die_with_the_demo,
            )  # fmt: skip
        self._processes.append(process)
        return process

    async def begin(self, port: int) -> Instance:
        self._named += 1
        holder_id = f"sm-{self._named:02}"
        process = await self.spawn(
            *PROGRAM, "serve", **{**self.settings, "SM_PORT": str(port), "SM_HOLDER_ID": holder_id}
        )
        return Instance(holder_id, port, process)

    async def replace(self, old: Instance) -> Instance:
        """Start a new instance, with a new name, at the address of `old`, and return it."""
        place = self.instances.index(old)
        self.instances[place] = await self.begin(old.port)
        return self.instances[place]

    async def until_up(self, instance: Instance) -> None:
        await self.until(lambda: instance.answers("/readyz"), f"{instance.holder_id} to be up", instance.process)
        instance.is_ready = True

    async def until(self, holds: Callable[[], object], what: str, process: Process | None = None) -> None:
        try:
            async with asyncio.timeout(UP_LIMIT_S):
                while not await holds():  # type: ignore[misc]
                    if process is not None and process.returncode is not None:
                        raise Unavailable(f"While waiting for {what}: it ended. {self.log_end()}", code="demo_stuck")
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            raise Unavailable(f"The demo waited {UP_LIMIT_S:g} s in vain for {what}.", code="demo_stuck") from None

    def log_end(self) -> str:
        lines = (self.folder / "stderr.log").read_text("utf-8", "replace").splitlines()
        return " | ".join(lines[-3:])

    async def close(self) -> None:
        """End all processes with SIGKILL, which works on frozen processes too."""
        for process in self._processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        for process in self._processes:
            await process.wait()


CONNECT_LIMIT_S = 0.5
CHUNK_BYTES = 65_536

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RoundRobin:
    """A small load balancer: listens on a free port of `host` and gives each connection to the next instance.

    It does not read HTTP: a client whose connection breaks opens another.
    """

    def __init__(self, host: str, ports: Sequence[int]) -> None:
        self._host = host
        self._ports = ports
        self._turns = itertools.cycle(ports)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accept, self._host, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve((reader, writer)), name="front")
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, client: Streams) -> None:
        instance = await self._connected()
        try:
            if instance is not None:
                ways = [asyncio.create_task(_pour(client, instance)), asyncio.create_task(_pour(instance, client))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
        finally:
            for end in (client, instance):
                if end is not None:
                    end[1].close()

    async def _connected(self) -> Streams | None:
        for _ in self._ports:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_LIMIT_S):
                    return await asyncio.open_connection(self._host, next(self._turns))
        return None


async def _pour(source: Streams, sink: Streams) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source[0].read(CHUNK_BYTES):
            sink[1].write(chunk)
            await sink[1].drain()
