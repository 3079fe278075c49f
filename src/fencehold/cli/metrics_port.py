"""`--metrics-port`: what Prometheus reads, served by a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import click

from fencehold.model.errors import ConfigurationError
from fencehold.ports.facts import FactSink
from fencehold.telemetry.fan_out import FanOut
from fencehold.telemetry.logs import LogSink

F = TypeVar("F", bound=Callable[..., Any])
Exposition = Callable[[], tuple[bytes, str]]

DEFAULT_HOST = "127.0.0.1"


def metrics_options(command: F) -> F:
    port = click.option(
        "--metrics-port", type=click.IntRange(0, 65535), default=None, metavar="PORT",
        help="Serve Prometheus metrics here (0: a free port, which the log names).  [not served]",
    )  # fmt: skip
    host = click.option(
        "--metrics-host", default=DEFAULT_HOST, metavar="HOST", help=f"On this address.  [{DEFAULT_HOST}]"
    )
    return port(host(command))


@contextmanager
def measured(host: str, port: int | None) -> Iterator[FactSink]:
    """Where facts go: to the log, and with a port to the metrics that are served there."""
    if port is None:
        yield LogSink()
        return
    from fencehold.telemetry.prometheus import PrometheusSink

    metrics = PrometheusSink()
    server = _server(host, port, metrics.exposition)
    threading.Thread(target=server.serve_forever, name="fencehold-metrics", daemon=True).start()
    sink = FanOut(LogSink(), metrics)
    shown = f"[{host}]" if ":" in host else host
    sink.fact("metrics_served", url=f"http://{shown}:{server.server_address[1]}/metrics")
    try:
        yield sink
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, exposition: Exposition) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.exposition = exposition
        super().__init__((host, port), _Page)


class _Page(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10  # seconds: a client that says nothing does not keep its thread

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in ("/", "/metrics"):
            self.send_error(404)
            return
        body, content_type = self.server.exposition()
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Every scrape would be a line."""


def _server(host: str, port: int, exposition: Exposition) -> _Server:
    try:
        return _Server(host, port, exposition)
    except OSError as error:
        raise ConfigurationError(
            f"Metrics cannot be served on {host} port {port}: {error.strerror or error}.",
            hint="Give another --metrics-port (0 takes a free one) or --metrics-host.",
            code="bad_metrics_port",
        ) from None
