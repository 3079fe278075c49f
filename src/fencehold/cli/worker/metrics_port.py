"""`--metrics-port`: serves the Prometheus metrics and the process's health, in threads of its own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import click

from fencehold.cli.worker.health import Health, Problem
from fencehold.model.errors import ConfigurationError
from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.facts import FactSink
from fencehold.telemetry.fan_out import FanOut
from fencehold.telemetry.logs import LogSink

F = TypeVar("F", bound=Callable[..., Any])
Exposition = Callable[[], tuple[bytes, str]]

DEFAULT_HOST = "127.0.0.1"


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
    """The sink for facts, and the health of this process."""

    facts: FactSink
    health: Health


@contextmanager
def measured(host: str, port: int | None) -> Iterator[Measured]:
    """Send facts to the log. With a port, send them to metrics too, and serve metrics and health there.

    Raises ConfigurationError if the port cannot be used.
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
        """Log nothing: otherwise every scrape would be a line."""


def _server(host: str, port: int, exposition: Exposition, health: Health) -> _Server:
    try:
        return _Server(host, port, exposition, health)
    except OSError as error:
        raise ConfigurationError(
            f"Metrics cannot be served on {host} port {port}: {error.strerror or error}.",
            hint="Give another --metrics-port (0 takes a free one) or --metrics-host.",
            code="bad_metrics_port",
        ) from None
