"""The `pgleaderlock` command: take part in an election, try a lock once, show who holds it."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click
from loguru import logger

from fencehold.backends.postgres import wire
from fencehold.ports.time_limit import fixed
from fencehold.runtime.lock.mechanism import ROUND_TRIP_LIMIT_S
from pgleaderlock.errors import HopelessError
from pgleaderlock.lock import INT32, LeaderLock
from pgleaderlock.models import LockState
from pgleaderlock.retry import ExponentialBackoff
from pgleaderlock.session import SQL, as_lock_error, connect_once

UNREACHABLE, BAD_CONFIGURATION = 69, 78
KEY = click.IntRange(INT32.start, INT32.stop - 1)


class InterceptHandler(logging.Handler):
    """Passes records of the stdlib logger on to loguru, with their own level."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level: str | int = logger.level(record.levelname).name
        except ValueError:
            level = record.levelno
        logger.opt(depth=6, exception=record.exc_info).log(level, "{}", record.getMessage())


def configure_logging() -> None:
    logger.remove()
    # diagnose=True would print the values of variables, and so the DSN.
    logger.add(sys.stderr, format="{time:HH:mm:ss.SSS} | {level: <7} | {message}", diagnose=False, backtrace=False)
    log = logging.getLogger("pgleaderlock")
    log.handlers = [InterceptHandler()]
    log.propagate = False
    log.setLevel(logging.INFO)


def _not_empty(_: click.Context, __: click.Parameter, dsn: str) -> str:
    """Return the DSN. Raises BadParameter if it is empty: libpq would then connect to a server on this machine."""
    if not dsn.strip():
        raise click.BadParameter(
            "it is empty. Name a server, postgresql://user@host/db, or leave --dsn out and set PG_DSN."
        )
    return dsn


def lock_options(command: Callable[..., None]) -> Callable[..., None]:
    dsn = "PostgreSQL connection string. Prefer the variable PG_DSN: what stands here is visible in the process list."
    for option in (
        click.option("--key2", type=KEY, required=True, help="Advisory lock key 2 (32-bit integer)."),
        click.option("--key1", type=KEY, required=True, help="Advisory lock key 1 (32-bit integer)."),
        click.option(
            "--dsn", envvar="PG_DSN", show_envvar=True, required=True, help=dsn, metavar="DSN", callback=_not_empty
        ),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Leader election by PostgreSQL advisory lock.

    \b
    Example:
      export PG_DSN=postgresql://user@host/db
      pgleaderlock run --key1 1234 --key2 5678
      pgleaderlock status --key1 1234 --key2 5678
    """


@main.command()
@lock_options
@click.option("--health-interval", type=float, default=5.0, show_default=True, help="Seconds between health checks.")
@click.option("--retry-base", type=float, default=1.0, show_default=True, help="Base delay of the backoff, seconds.")
@click.option("--retry-max", type=float, default=30.0, show_default=True, help="Longest delay of the backoff, seconds.")
@click.option("--reconnect-grace", type=float, default=None, help="Flap damping, seconds; omit to disable.")
@click.option("--no-auto-reacquire", is_flag=True, help="Stop after a loss instead of trying again.")
def run(
    dsn: str, key1: int, key2: int, health_interval: float, retry_base: float, retry_max: float,
    reconnect_grace: float | None, no_auto_reacquire: bool,
) -> None:  # fmt: skip
    """Take part in an election and log every transition, until SIGTERM or Ctrl-C (exit code 0).

    It ends by itself when no retry can help (78), and with --no-auto-reacquire when the database cannot be used (69)
    or leadership was lost (1). SIGUSR1 makes a leader step down: another follower leads, and it follows on; if the
    release fails with an error, it ends (69).
    """
    configure_logging()

    def make() -> LeaderLock:
        return LeaderLock(
            dsn, key1, key2, retry_strategy=ExponentialBackoff(retry_base, retry_max),
            health_interval_s=health_interval, reconnect_grace_s=reconnect_grace, auto_reacquire=not no_auto_reacquire,
        )  # fmt: skip

    sys.exit(asyncio.run(_run(_made(make))))


async def _run(lock: LeaderLock) -> int:
    stopped = asyncio.Event()
    failed: Exception | None = None  # the last one
    lost = False
    lock.on_acquired(lambda: logger.info("on_acquired"))
    lock.on_released(lambda: logger.info("on_released"))
    lock.on_acquire_failed(lambda: logger.info("on_acquire_failed"))
    lock.on_stopped(stopped.set)

    @lock.on_lost
    def note_loss() -> None:
        nonlocal lost
        lost = True
        logger.warning("on_lost")

    @lock.on_error
    def note_error(error: Exception) -> None:
        nonlocal failed
        failed = error
        logger.error("on_error {}", error)

    told = _signals(lock)
    async with lock:
        waits = [asyncio.create_task(told.wait()), asyncio.create_task(stopped.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    if told.is_set() or not (failed or lost):
        return 0
    if failed is not None and (isinstance(failed, HopelessError) or not lost):
        return _exit_code(failed)
    return 1


def _signals(lock: LeaderLock) -> asyncio.Event:
    """Install signal handlers. SIGTERM and SIGINT set the returned event; SIGUSR1 makes the lock step down."""
    told = asyncio.Event()
    stepping: set[asyncio.Task[None]] = set()

    def step_down() -> None:
        task = asyncio.create_task(lock.step_down())
        stepping.add(task)
        task.add_done_callback(stepping.discard)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    loop.add_signal_handler(signal.SIGUSR1, step_down)
    return told


@main.command()
@lock_options
def acquire(dsn: str, key1: int, key2: int) -> None:
    """Try once. Exit code 0 if the lock was free (it is given back at once), 1 if not, 69 if unreachable."""

    async def once() -> int:
        failed: list[Exception] = []
        refused = asyncio.Event()
        lock = _made(lambda: LeaderLock(dsn, key1, key2, auto_reacquire=False))
        lock.on_error(failed.append)
        lock.on_state_change(lambda old, new: refused.set() if old is LockState.ACQUIRING else None)
        async with lock:
            await refused.wait()
            led = lock.is_leader
        if failed:
            return _complain(failed[0])
        click.echo("acquired" if led else "not acquired: another session holds it")
        return 0 if led else 1

    sys.exit(asyncio.run(once()))


@main.command()
@lock_options
def status(dsn: str, key1: int, key2: int) -> None:
    """Show which session holds the lock, from pg_locks. Informational: it may have changed when you read it."""

    async def look() -> int:
        connection = await connect_once(dsn, ROUND_TRIP_LIMIT_S)
        try:
            work = wire.row_of(connection, SQL["holder"], {"key1": key1, "key2": key2})
            row = await wire.bounded(connection, work, fixed(ROUND_TRIP_LIMIT_S))
        finally:
            wire.discard(connection)
        if row is None:
            click.echo(f"key1={key1} key2={key2}: free")
            return 1
        pid, application, address, user, since = row
        click.echo(
            f"key1={key1} key2={key2}: held by pid={pid} application={application or '-'} client={address} "
            f"user={user} connected_since={since:%Y-%m-%dT%H:%M:%S%z}"
        )
        return 0

    sys.exit(asyncio.run(_sorted(look())))


def _made(make: Callable[[], LeaderLock]) -> LeaderLock:
    try:
        return make()
    except ValueError as error:
        click.echo(f"pgleaderlock: {error}", err=True)
        sys.exit(BAD_CONFIGURATION)


async def _sorted(work: Coroutine[Any, Any, int]) -> int:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - a traceback could show the DSN
        return _complain(as_lock_error(error))


def _complain(error: Exception) -> int:
    click.echo(f"pgleaderlock: {error}", err=True)
    return _exit_code(error)


def _exit_code(error: Exception) -> int:
    return BAD_CONFIGURATION if isinstance(error, HopelessError) else UNREACHABLE
