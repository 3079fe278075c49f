"""The health of a worker's process, and `--metrics-port`, which serves it with the Prometheus metrics.

Health is set on the event loop and read by the HTTP server's threads. Every answer comes from memory, at once: a
hanging database shows as one that has not answered for too long.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import click

from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.facts import FactSink
from fencehold.runtime.core.clock import BootClock
from fencehold.telemetry.fan_out import FanOut
from fencehold.telemetry.logs import LogSink

TURN_EVERY_S = 0.5
ASK_EVERY_S = 2.0
ASK_AGAIN_S = 0.5  # after a problem was found
ANSWER_WITHIN_S = 3.0  # not ready if the loop has not turned, or the database has not answered, for longer
BLOCKED_AFTER_S = 1.5  # a loop that is not ready, and has not turned for longer, is blocked
SILENT_S_MAX = 30.0

CLOCK = BootClock()

NowS = Callable[[], float]
Ask = Callable[[], Awaitable[object]]
BlockedBy = Callable[[], str]

F = TypeVar("F", bound=Callable[..., Any])
Exposition = Callable[[], tuple[bytes, str]]

DEFAULT_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Problem:
    """The reason why a health request is answered with 503."""

    code: str
    message: str


class Health:
    """The health of this process: whether its event loop runs, and whether its database answers.

    `is_served` False: nobody can read the health, so the database is not asked.
    """

    def __init__(self, is_served: bool = True, now_s: NowS = CLOCK.now_s) -> None:
        self._is_served = is_served
        self._now_s = now_s
        self._turned_s = now_s()
        self._is_turning = False  # True inside `watched`: only there the loop sets its time
        self._asked_s: float | None = None  # when the database was asked, if it has not answered yet
        self._told: Problem | None = Problem("starting", "It has not begun yet.")
        self._silent_s_max: Callable[[], float] = lambda: SILENT_S_MAX
        self._blocked_by: BlockedBy = str

    @asynccontextmanager
    async def watched(
        self, ask: Ask, silent_s_max: Callable[[], float] = lambda: SILENT_S_MAX, blocked_by: BlockedBy = str
    ) -> AsyncIterator[None]:
        """Inside the block, record that the event loop runs its callbacks, and call `ask` at intervals.

        `ask` raises if something is wrong. A loop that has run no callback for longer than `silent_s_max` is not live.
        Then `blocked_by` is called, on any thread; it returns what the loop is doing, or an empty text if that is
        unknown.
        """
        self._silent_s_max, self._blocked_by = silent_s_max, blocked_by
        tasks = [asyncio.create_task(one) for one in (self._turn(), self._ask(ask))] if self._is_served else []
        try:
            yield
        finally:
            self._is_turning, self._told = False, Problem("stopping", "It is stopping, or has ended.")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def live(self) -> list[Problem]:
        """Return the problems that make the process not live: its event loop is blocked. Empty if the loop runs."""
        silent_s = self._now_s() - self._turned_s
        return [self._silent(silent_s)] if silent_s > self._silent_s_max() else []

    def ready(self) -> list[Problem]:
        """Return the problems that make the process not ready.

        Empty: the loop runs, the database answers, the table exists. If the loop is blocked, only that is reported: its
        last news of the database may be outdated.
        """
        now_s, asked_s, told = self._now_s(), self._asked_s, self._told
        silent_s = now_s - self._turned_s
        if self._is_turning and silent_s > (ANSWER_WITHIN_S if told is None else BLOCKED_AFTER_S):
            return [self._silent(silent_s)]
        if asked_s is not None and now_s - asked_s > ANSWER_WITHIN_S:
            return [Problem("no_answer", f"The database has not answered for {now_s - asked_s:.0f} s.")]
        return [told] if told is not None else []

    def _silent(self, silent_s: float) -> Problem:
        why = self._blocked_by()
        return Problem(
            "loop_blocked", f"The event loop has not turned for {silent_s:.0f} s{f': {why}' if why else ''}."
        )

    # --- on the loop ---

    async def _turn(self) -> None:
        self._is_turning = True
        while True:
            self._turned_s = self._now_s()
            await asyncio.sleep(TURN_EVERY_S)

    async def _ask(self, ask: Ask) -> None:
        while True:
            self._asked_s = self._now_s()
            try:
                await ask()
                self._told = None
            except FenceholdError as error:
                self._told = Problem(error.code, error.message)
            except Exception as error:  # noqa: BLE001 - after any error the process must not be reported as ready
                self._told = Problem("internal_error", type(error).__name__)
            self._asked_s = None
            await asyncio.sleep(ASK_EVERY_S if self._told is None else ASK_AGAIN_S)


def metrics_options(command: F) -> F:
    port = click.option(
        "--metrics-port", type=click.IntRange(0, 65535), default=None, metavar="PORT",
        help="Serve Prometheus metrics, /health/live and /health/ready here (0: a free port, which the log names).  "
        "[not served]",
    )  # fmt: skip
    host = click.option(
        "--metrics-host",
        default=DEFAULT_HOST,
        metavar="HOST",
        help=f"The address for --metrics-port.  [{DEFAULT_HOST}]",
    )
    return port(host(command))


@dataclass(frozen=True)
class Measured:
    """What a long-running command reports to: the sink for its facts, and the health of its process."""

    facts: FactSink
    health: Health


@contextmanager
def measured(host: str, port: int | None) -> Iterator[Measured]:
    """Send facts to the log, inside the block.

    With a port, send them to metrics too, and serve metrics and health there. Raises ConfigurationError if the port
    cannot be used.
    """
    if port is None:
        yield Measured(LogSink(), Health(is_served=False))
        return
    from fencehold.telemetry.prometheus import PrometheusSink

    metrics, health = PrometheusSink(), Health()
    server = _server(host, port, metrics.exposition, health)
    threading.Thread(target=server.serve_forever, name="fencehold-metrics", daemon=True).start()
    sink = FanOut(LogSink(), metrics)
    shown = f"[{host}]" if ":" in host else host
    StoreFacts(sink).metrics_served(url=f"http://{shown}:{server.server_address[1]}/metrics")
    try:
        yield Measured(sink, health)
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, exposition: Exposition, health: Health) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.exposition = exposition
        self.health = health
        super().__init__((host, port), _Page)


class _Page(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10  # seconds: a client that sends nothing does not keep its thread

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/" | "/metrics":
                self._send(200, *self.server.exposition())
            case "/health/live":
                self._send_health(self.server.health.live())
            case "/health/ready":
                self._send_health(self.server.health.ready())
            case _:
                self.send_error(404)

    def _send_health(self, problems: list[Problem]) -> None:
        body = {"status": "failing" if problems else "ok", "problems": [asdict(problem) for problem in problems]}
        self._send(503 if problems else 200, json.dumps(body).encode() + b"\n", "application/json")

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: otherwise every request for the metrics would be a line."""


def _server(host: str, port: int, exposition: Exposition, health: Health) -> _Server:
    try:
        return _Server(host, port, exposition, health)
    except OSError as error:
        raise ConfigurationError(
            f"Metrics cannot be served on {host} port {port}: {error.strerror or error}.",
            hint="Give another --metrics-port (0 takes a free one) or --metrics-host.",
            code="bad_metrics_port",
        ) from None
