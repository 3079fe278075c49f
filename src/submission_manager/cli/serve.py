"""`submission-manager serve`: one instance, until a signal."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

import click

from fencehold import ConfigurationError, FactSink, LogSink, command
from fencehold.command import NO, OK, Stop, StopBy, keep_secret, log_to_stderr
from fencehold.service import label
from submission_manager.cli.early_stop import EARLY_STOP
from submission_manager.http.server import raise_limit
from submission_manager.instance import Instance
from submission_manager.metrics import leave_out_creation_times
from submission_manager.registry import registry as registries
from submission_manager.settings import SETTINGS, SWITCH, Setting, Settings, settings, unknown_variables

NEVER_RETRIED = "the retry delay is as long as their maxAcceptanceSeconds or longer: they get one attempt and no other"
DSN_VARIABLE = "FENCEHOLD_DSN"  # with which `fencehold` names its database
CLOSING_S = 15.0  # after draining, for releasing the lease and closing connections

LEVELS = {
    "leader_renewed": logging.INFO,
    "leader_acquire_failed": logging.INFO,
    "tables_created": logging.INFO,
    "serving": logging.INFO,
    "draining": logging.INFO,
    "stopped": logging.INFO,
    "schedule_rebuilt": logging.INFO,
    "request_failed": logging.WARNING,
    "webhook_failed": logging.WARNING,
    "variables_missing": logging.WARNING,
    "variable_unknown": logging.WARNING,
    "variable_ignored": logging.WARNING,
    "retry_delay_long": logging.WARNING,
    "attempt_failed": logging.WARNING,
    "attempt_rejected": logging.DEBUG,
    "attempts_cut": logging.ERROR,
    "webhooks_cut": logging.WARNING,
    "leadership_paused": logging.WARNING,
    "connections_refused": logging.WARNING,
    "executor_sql_error": logging.WARNING,
    "attempt_fenced_out": logging.WARNING,
    "deadlines_missed": logging.WARNING,
    "expiry_put_off": logging.WARNING,
    "backlog_full": logging.WARNING,
    "backlog_uncounted": logging.WARNING,
    "outcomes_unknown": logging.WARNING,
    "intent_parked": logging.ERROR,
    "webhook_not_recorded": logging.ERROR,
}

FORMATS = ("text", "json")
WEIGHTS = ("debug", "info", "warning", "error")

EPILOG = """\b
Example:
  export SM_DATABASE=postgresql://app@db/app      # rather than --database: that is visible in the process list
  submission-manager check --registry registry.json && submission-manager serve --registry registry.json
\b
Durations: 30, 0.5, 30s, 500ms, 5m. The log goes to stderr.
A database that is away is waited for, with a line in the log.
Exit codes: 0 stopped in order, 1 the drain timeout cut attempts (attempts_cut in the log) or it did not end in time,
78 bad configuration (no tables, no rights, refused login), 130 stopped at once by a second signal
"""


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    for setting in reversed(SETTINGS):
        command = _option(setting)(command)
    return command


def _option(setting: Setting) -> Callable[..., Any]:
    default = "" if setting.default is None else f"  [{setting.default}]"
    told = f"{setting.meaning} {setting.variable}{default}"
    if setting.kind == SWITCH:  # `settings` reads its variable, with the others
        both = f"{setting.option}/{setting.option.replace('--', '--no-', 1)}"
        return click.option(both, setting.name, default=None, help=told)
    return click.option(
        setting.option, setting.name, envvar=setting.variable, default=None, metavar=setting.kind, help=told
    )


def _no_dsn(_: click.Context, __: click.Parameter, value: str | None) -> None:
    """Refuse the option --dsn with a hint that names our own option: --dsn names the database in `fencehold` only."""
    if value is not None:
        hint = "Name the database with --database, or with the variable SM_DATABASE."
        raise ConfigurationError("There is no option --dsn.", hint=hint, code="bad_usage")


@click.command(epilog=EPILOG)
@with_settings
@click.option("--dsn", hidden=True, expose_value=False, callback=_no_dsn)
@click.option(
    "--init/--no-init", "creates_tables", default=True, envvar="SM_INIT", help="Create or upgrade the tables. SM_INIT"
)
@click.option(
    "--log-format", type=click.Choice(FORMATS), default="text", envvar="SM_LOG_FORMAT", help="SM_LOG_FORMAT  [text]"
)
@click.option(
    "--log-level", type=click.Choice(WEIGHTS), default="info", envvar="SM_LOG_LEVEL", help="SM_LOG_LEVEL  [info]"
)
def serve(creates_tables: bool, log_format: str, log_level: str, **given: Any) -> int:
    """Serve one instance: intents over HTTP and, while it holds the lease, their execution.

    Every option is also the SM_* variable named at its end. SIGTERM or Ctrl-C stops it in order: no longer ready,
    requests in hand are answered, attempts in hand recorded, the lease given back. A second signal stops it at once.
    """
    chosen = settings(given, os.environ)
    keep_secret(chosen.database)
    registry = registries.load(chosen.registry)
    facts = service_log(log_format, log_level)
    missing = registry.variables_missing(os.environ)
    if missing:
        facts.fact("variables_missing", variables=", ".join(missing), why="webhooks that need them will fail")
    never_retried = registry.never_retried(chosen.retry_delay_s)
    if never_retried:
        facts.fact(
            "retry_delay_long", retry_delay_s=chosen.retry_delay_s, targets=", ".join(never_retried), why=NEVER_RETRIED
        )
    for variable, nearest in unknown_variables(os.environ, registry.variables).items():
        facts.fact(
            "variable_unknown", variable=variable, nearest=nearest, why="no setting has this name; it is ignored"
        )
    if given["database"] is None and os.environ.get(DSN_VARIABLE):
        why = "only --database and SM_DATABASE name the database of this service"
        facts.fact("variable_ignored", variable=DSN_VARIABLE, database=label(chosen.database), why=why)
    leave_out_creation_times()
    raise_limit()
    return asyncio.run(command.serve(lambda stop_by: _serve(chosen, registry, facts, creates_tables, stop_by)))


async def _serve(
    chosen: Settings, registry: registries.Registry, facts: FactSink, creates_tables: bool, stop_by: StopBy
) -> int:
    EARLY_STOP.hand_over()
    instance = Instance(chosen, registry, facts, creates_tables=creates_tables)
    async with instance:
        # First requests have the drain timeout, then attempts have it again.
        within_s = chosen.drain_delay_s + 2 * chosen.drain_timeout_s
        stop_by(Stop(instance.ask_to_stop, within_s=within_s, spare_s=CLOSING_S, last_words=instance.log_cut))
        await instance.serve()
    return NO if instance.attempts_cut else OK


def service_log(log_format: str, log_level: str) -> LogSink:
    log_to_stderr(as_json=log_format == "json")
    logging.getLogger("fencehold").setLevel(log_level.upper())
    # These libraries log single connections; the service counts what matters of them.
    for noisy in ("uvicorn.error", "uvicorn.access", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    return LogSink(levels=LEVELS)
