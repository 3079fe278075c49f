"""Every setting of an instance: its option, its variable, its default. All are checked together, before any I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from fencehold import ConfigurationError, Durability, OnError
from fencehold.service import check_leader, default_holder_id, scheme, seconds

DATABASES = ("sqlite", "postgresql", "mssql")
DURABLE = get_args(Durability)
DURATION, WHOLE, TEXT, SWITCH = "DURATION", "NUMBER", "TEXT", "SWITCH"
WORDS = {word: is_on for is_on, said in ((True, "on yes true 1"), (False, "off no false 0")) for word in said.split()}
CONNECTIONS_MOST = 10_000


@dataclass(frozen=True)
class Setting:
    """One setting. `option` is its name with dashes, `variable` is its name in capitals after SM_."""

    name: str
    kind: str
    default: str | None
    meaning: str
    whole_min: int = 1
    whole_max: int = 2**31 - 1
    may_be_zero: bool = False  # only for a duration

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return f"SM_{self.name.upper()}"


SETTINGS: tuple[Setting, ...] = (
    Setting("database", TEXT, "sqlite:///submission-manager.db", "Where all state is: sqlite:///, postgresql:// or mssql://."),
    Setting(
        "durable", TEXT, None,
        "PostgreSQL: commits count once a standby has them (replicated) or shows them (replicated_and_applied)."
        "  [as set]",
    ),
    Setting("registry", TEXT, "registry.json", "The file of targets and their contracts."),
    Setting("host", TEXT, "127.0.0.1", "Serve HTTP on this address."),
    Setting("port", WHOLE, "8080", "Serve HTTP on this port; 0 takes a free one, which the log names.", 0, 65535),
    Setting("lease_duration", DURATION, "60s", "How long leadership lasts without a renewal."),
    Setting("renew_interval", DURATION, "20s", "How often the leader renews; below the lease duration."),
    Setting(
        "acquire_interval", DURATION, "30s",
        "How often a follower tries to get the lease, besides at every known expiry.",
    ),
    Setting(
        "schedule_refresh_interval", DURATION, "1s",
        "How often the leader looks for intents that other instances stored.",
    ),
    Setting("lease_name", TEXT, "submission-manager-executor", "The lease whose holder leads."),
    Setting("holder_id", TEXT, None, "The name of this instance, as others see it.  [host-pid-random]"),
    Setting("on_sql_error", TEXT, "drop", "After a database error: give the term up (drop) or try again (retry)."),
    Setting("retry_delay", DURATION, "5s", "Between two attempts of one intent."),
    Setting("concurrency", WHOLE, "16", "Attempts in flight at the same time to one gateway.", 1, 1000),
    Setting("virtual_deadline", DURATION, "60s", "An intent without a deadline waits its turn as if it had this one."),
    Setting("gateway_timeout", DURATION, "10s", "The limit for one gateway call, from connecting to the last byte."),
    Setting("webhook_timeout", DURATION, "10s", "The limit for one webhook, from connecting to the last byte."),
    Setting("webhook_concurrency", WHOLE, "4", "Webhooks under way at the same time to one receiver.", 1, 1000),
    Setting("database_timeout", DURATION, "5s", "The limit for one database statement of a client's request."),
    Setting("request_timeout", DURATION, "10s", "The limit for a client to send its request."),
    Setting(
        "max_connections", WHOLE, None,
        "Client connections at the same time; any more are answered 503.  [by open files]", 1, CONNECTIONS_MOST,
    ),
    Setting("body_limit", WHOLE, "1048576", "The largest request body, in bytes.", 1, 1 << 30),
    Setting(
        "drain_delay", DURATION, "0", "After SIGTERM keep serving, but report not-ready, for this long.",
        may_be_zero=True,
    ),
    Setting("drain_timeout", DURATION, "15s", "How long requests, then attempts, may take to end after SIGTERM."),
    Setting("release_on_stop", SWITCH, "on", "Give the lease back at SIGTERM; off: others wait until it expires."),
)  # fmt: skip

OTHER_VARIABLES = ("SM_INIT", "SM_LOG_FORMAT", "SM_LOG_LEVEL")

BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True)
class Settings:
    database: str
    durable: Durability | None
    registry: str
    host: str
    port: int
    lease_duration_s: float
    renew_interval_s: float
    acquire_interval_s: float
    schedule_refresh_interval_s: float
    lease_name: str
    holder_id: str
    on_sql_error: OnError
    retry_delay_s: float
    concurrency: int
    virtual_deadline_s: float
    gateway_timeout_s: float
    webhook_timeout_s: float
    webhook_concurrency: int
    database_timeout_s: float
    request_timeout_s: float
    max_connections: int | None
    body_limit_bytes: int
    drain_delay_s: float
    drain_timeout_s: float
    release_on_stop: bool


_FIELD = {DURATION: "{}_s", WHOLE: "{}", TEXT: "{}", SWITCH: "{}"}
_FIELD_OF = {one.name: _FIELD[one.kind].format(one.name) for one in SETTINGS} | {"body_limit": "body_limit_bytes"}


def settings(given: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Read each setting and return all: the given value, else the variable, else the default.

    Raises one ConfigurationError that names every problem.
    """
    said = {one: _said(one, given or {}, environment or {}) for one in SETTINGS}
    problems: list[str] = []
    got = {_FIELD_OF[one.name]: _value(one, value, problems) for one, value in said.items()}
    got["holder_id"] = got["holder_id"] or default_holder_id()
    _relations(got, problems)
    if problems:
        raise ConfigurationError(
            "These settings cannot work: " + "; ".join(problems) + ".",
            hint="Each is an option of `submission-manager serve` and an SM_* variable; see its --help.",
            code="bad_settings",
        )
    return Settings(**got)


def unknown_variables(environment: Iterable[str], others: Iterable[str] = ()) -> dict[str, str | None]:
    """Return the SM_* variables that are not settings, each with the variable of the most similar setting, or None."""
    known = [one.variable for one in SETTINGS] + list(OTHER_VARIABLES)
    unknown = {name for name in environment if name.startswith("SM_")} - {*known, *others}
    return {name: next(iter(difflib.get_close_matches(name, known, 1)), None) for name in sorted(unknown)}


def _said(one: Setting, given: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    if given.get(one.name) is not None:
        return given[one.name]
    return environment.get(one.variable) or one.default


def _value(one: Setting, value: Any, problems: list[str]) -> Any:
    """Return the checked value of a setting. If it is bad, add to `problems` and return None.

    A bad setting is not checked against other settings.
    """
    what = f"{one.option} ({one.variable})"
    try:
        match one.kind:
            case "DURATION":
                return seconds(value, what, may_be_zero=one.may_be_zero)
            case "NUMBER":
                return None if value is None else _whole(one, value, what)
            case "SWITCH":
                return _switch(value, what)
        return _text(one, value)
    except ConfigurationError as error:
        problems.append(error.message.rstrip("."))
        return None


def _whole(one: Setting, value: Any, what: str) -> int:
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and len(text) < 12 and one.whole_min <= int(text) <= one.whole_max):
        raise ConfigurationError(f"{what} is {value!r:.60}; it must be from {one.whole_min} to {one.whole_max}")
    return int(text)


def _switch(value: Any, what: str) -> bool:
    is_on = value if isinstance(value, bool) else WORDS.get(str(value).strip().lower())
    if is_on is None:
        raise ConfigurationError(f"{what} is {value!r:.60}; it must be on or off")
    return is_on


def _text(one: Setting, value: str | None) -> str | None:
    what = f"{one.option} ({one.variable})"
    if value is None and one.default is None:
        return None
    match one.name:
        case "holder_id":
            check_leader(holder_id=value)
        case "lease_name":
            check_leader(value or "")
        case "durable" if value not in DURABLE:
            raise ConfigurationError(f"{what}: durable is {value!r:.60}; it must be {' or '.join(map(repr, DURABLE))}")
        case "on_sql_error" if value not in ("drop", "retry"):
            raise ConfigurationError(f"{what} is {value!r:.60}; it must be drop or retry")
        case "database" if scheme(value) not in DATABASES:
            # The URL itself is not shown: it may hold a password.
            raise ConfigurationError(f"{what} names no SQLite file, PostgreSQL or SQL Server database")
    if not value or "\0" in value:
        raise ConfigurationError(f"{what} is empty")
    return value


def _relations(got: Mapping[str, Any], problems: list[str]) -> None:
    lease_s, renew_s, acquire_s = (
        got[f"{name}_s"] for name in ("lease_duration", "renew_interval", "acquire_interval")
    )
    if lease_s is None or renew_s is None or acquire_s is None:
        return
    if renew_s >= lease_s:
        problems.append(f"--renew-interval ({renew_s:g} s) must be below --lease-duration ({lease_s:g} s)")
        return
    try:
        check_leader(lease=lease_s, renew_every=renew_s, acquire_every=acquire_s)
    except ConfigurationError as error:
        problems.append(error.message.rstrip("."))
