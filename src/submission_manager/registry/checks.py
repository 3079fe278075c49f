"""Checks a registry field by field. Each problem names its place, and all problems are reported together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from submission_manager.model.contracts import (
    PRIORITY_MAX,
    TAXONOMY,
    Contract,
    GatewayType,
    Policy,
    Queueing,
    Target,
    Webhook,
)

TARGET_CHARS_MAX = 200
URL_CHARS_MAX = 2000
HEADERS_MAX = 50
HEADER_CHARS_MAX = 4000
SECONDS_MAX = 10 * 366 * 86_400
ATTEMPTS_MAX = 1_000_000
BACKLOG_MAX = 100_000_000

TOP = {"allowUnsignedWebhooks", "targets"}
TARGET = {
    "submissionTarget", "gatewayType", "gatewayUrl", "policy", "maxAcceptanceSeconds", "maxAttempts",
    "terminalOutcomes", "webhook", "priority", "maxBacklog",
}  # fmt: skip
WEBHOOK = {"url", "headers", "headersEnv", "secretEnv"}

#: policy -> the limit it needs; no other policy may have it
LIMITS = {Policy.DEADLINE: ("maxAcceptanceSeconds", SECONDS_MAX), Policy.MAX_ATTEMPTS: ("maxAttempts", ATTEMPTS_MAX)}

#: Headers of the connection, not of the message: setting them by hand would break the request.
FRAMING = {"content-length", "transfer-encoding", "connection", "host", "expect", "te", "trailer", "upgrade"}

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e\t]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Problems:
    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, place: str, problem: str) -> None:
        self.found.append(f"{place}: {problem}" if place else problem)

    def fields(self, value: object, place: str, known: Iterable[str]) -> Mapping[str, Any]:
        """Return the JSON object at this place; add a problem if it is no object, and one for each unknown field."""
        if not isinstance(value, dict):
            self.add(place, f"must be an object, not {kind_of(value)}")
            return {}
        for name in value:
            if name not in known:
                self.add(at(place, name), "is not a known field")
        return value

    def text(self, value: object, place: str, chars_max: int) -> str | None:
        problem = None
        if not isinstance(value, str):
            problem = f"must be text, not {kind_of(value)}"
        elif not value or value != value.strip():
            problem = "must not be empty, nor begin or end with a blank"
        elif len(value) > chars_max:
            problem = f"has {len(value)} characters, more than {chars_max}"
        elif not all(c.isprintable() for c in value):
            problem = "has characters that cannot be printed"
        else:
            return value
        self.add(place, problem)
        return None

    def whole(self, value: object, place: str, least: int, most: int) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self.add(place, f"must be a whole number from {least} to {most}")
        return None

    def one_of(self, value: object, place: str, allowed: Iterable[str]) -> str | None:
        if isinstance(value, str) and value in allowed:
            return value
        shown = f"{value!r:.60}" if isinstance(value, str) else kind_of(value)
        self.add(place, f"must be one of {', '.join(allowed)}, not {shown}")
        return None


def top(document: object, problems: Problems) -> list[Target]:
    fields = problems.fields(document, "", TOP)
    unsigned = fields.get("allowUnsignedWebhooks", False)
    if not isinstance(unsigned, bool):
        problems.add("allowUnsignedWebhooks", f"must be true or false, not {kind_of(unsigned)}")
    targets = fields.get("targets")
    if not isinstance(document, dict):
        return []
    if not isinstance(targets, list) or not targets:
        problems.add("targets", "must be a list of at least one target")
        return []
    found = [_target(one, f"targets[{n}]", unsigned is True, problems) for n, one in enumerate(targets)]
    _unique(targets, problems)
    return [target for target in found if target is not None]


def _unique(targets: list[Any], problems: Problems) -> None:
    seen: dict[str, int] = {}
    for n, target in enumerate(targets):
        name = target.get("submissionTarget") if isinstance(target, dict) else None
        if isinstance(name, str) and seen.setdefault(name, n) != n:
            problems.add(f"targets[{n}].submissionTarget", f"{name!r:.60} is targets[{seen[name]}] already")


def _target(value: object, place: str, unsigned: bool, problems: Problems) -> Target | None:
    if not isinstance(value, dict):
        problems.add(place, f"must be an object, not {kind_of(value)}")
        return None
    before = len(problems.found)
    fields = problems.fields(value, place, TARGET)
    name = problems.text(fields.get("submissionTarget"), f"{place}.submissionTarget", TARGET_CHARS_MAX)
    gateway = problems.one_of(fields.get("gatewayType"), f"{place}.gatewayType", list(GatewayType))
    url = _url(fields.get("gatewayUrl"), f"{place}.gatewayUrl", problems, is_base=True)
    policy = problems.one_of(fields.get("policy"), f"{place}.policy", list(Policy))
    limits = _limits(fields, policy, place, problems)
    outcomes = _outcomes(fields.get("terminalOutcomes"), gateway, f"{place}.terminalOutcomes", problems)
    webhook = _webhook(fields["webhook"], f"{place}.webhook", unsigned, problems) if "webhook" in fields else None
    queueing = _queueing(fields, place, problems)
    if len(problems.found) > before or name is None or gateway is None or url is None or policy is None:
        return None
    contract = Contract(
        name, GatewayType(gateway), url, Policy(policy), outcomes,
        max_acceptance_seconds=limits.get("maxAcceptanceSeconds"), max_attempts=limits.get("maxAttempts"),
        webhook=webhook,
    )  # fmt: skip
    return Target(contract, queueing)


def _queueing(fields: Mapping[str, Any], place: str, problems: Problems) -> Queueing:
    priority = problems.whole(fields.get("priority", 0), f"{place}.priority", 0, PRIORITY_MAX)
    most = fields.get("maxBacklog", ...)
    return Queueing(priority or 0, None if most is ... else problems.whole(most, f"{place}.maxBacklog", 1, BACKLOG_MAX))


def _limits(fields: Mapping[str, Any], policy: str | None, place: str, problems: Problems) -> dict[str, int]:
    found: dict[str, int] = {}
    for owner, (name, most) in LIMITS.items():
        value, where = fields.get(name), f"{place}.{name}"
        if name in fields and policy is not None and policy != owner:
            problems.add(where, f"is only for the policy {owner.value}, not for {policy}")
        elif name not in fields and policy == owner:
            problems.add(where, f"must be given with the policy {owner.value}")
        elif name in fields and (whole := problems.whole(value, where, 1, most)) is not None:
            found[name] = whole
    return found


def _outcomes(value: object, gateway: str | None, place: str, problems: Problems) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        problems.add(place, "must be a list of at least one outcome")
        return ()
    for n, outcome in enumerate(value):
        where = f"{place}[{n}]"
        if gateway is not None:
            problems.one_of(outcome, where, sorted(TAXONOMY[GatewayType(gateway)]))
        elif not isinstance(outcome, str):
            problems.add(where, f"must be text, not {kind_of(outcome)}")
        if outcome in value[:n]:
            problems.add(where, f"{outcome!r:.60} is listed already")
    return tuple(outcome for outcome in value if isinstance(outcome, str))


def _webhook(value: object, place: str, unsigned: bool, problems: Problems) -> Webhook | None:
    if not isinstance(value, dict):
        problems.add(place, f"must be an object, not {kind_of(value)}")
        return None
    fields = problems.fields(value, place, WEBHOOK)
    url = _url(fields.get("url"), f"{place}.url", problems, is_base=False)
    headers = _headers(fields.get("headers", {}), f"{place}.headers", problems)
    headers_env = _headers(fields.get("headersEnv", {}), f"{place}.headersEnv", problems, of_variables=True)
    _in_one_map(headers, headers_env, place, problems)
    secret = fields.get("secretEnv")
    if "secretEnv" in fields:
        _variable(secret, f"{place}.secretEnv", problems)
    elif not unsigned:
        problems.add(f"{place}.secretEnv", "must be given, unless allowUnsignedWebhooks is true")
    return Webhook(url, headers, headers_env, secret if isinstance(secret, str) else None) if url else None


def _headers(value: object, place: str, problems: Problems, *, of_variables: bool = False) -> dict[str, str]:
    if not isinstance(value, dict):
        problems.add(place, f"must be an object, not {kind_of(value)}")
        return {}
    if len(value) > HEADERS_MAX:
        problems.add(place, f"has more than {HEADERS_MAX} headers")
    seen: set[str] = set()
    for name, given in value.items():
        where = at(place, name)
        if not _TOKEN.fullmatch(name) or name.lower() in FRAMING:
            problems.add(where, "is not a header that can be set")
        if name.lower() == "content-type" or name.lower().startswith("x-setu-"):
            problems.add(where, "is reserved: the service sets it itself")
        if name.lower() in seen:
            problems.add(where, "is given already, in other letters")
        seen.add(name.lower())
        if of_variables:
            _variable(given, where, problems)
        elif not isinstance(given, str) or len(given) > HEADER_CHARS_MAX or not _VALUE.fullmatch(given):
            problems.add(where, f"must be at most {HEADER_CHARS_MAX} printable ASCII characters")
    return {name: given for name, given in value.items() if isinstance(given, str)}


def _in_one_map(headers: Mapping[str, str], headers_env: Mapping[str, str], place: str, problems: Problems) -> None:
    fixed = {name.lower() for name in headers}
    for name in headers_env:
        if name.lower() in fixed:
            problems.add(at(f"{place}.headersEnv", name), "is in headers too; a header is in one map only")


def _variable(value: object, place: str, problems: Problems) -> None:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        problems.add(place, "must be the name of an environment variable")


def _url(value: object, place: str, problems: Problems, *, is_base: bool) -> str | None:
    """Return the checked URL, or add a problem and return None.

    A problem never quotes the URL: it may hold a password.
    """
    url = problems.text(value, place, URL_CHARS_MAX)
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0 and url.isascii()
    except ValueError:
        fits = False
    if not fits or " " in url:
        problems.add(place, "must be an http or https URL with a host")
    elif is_base and (parts.query or parts.fragment):
        problems.add(place, "must have neither query nor fragment: /sms/send or /push/send is put behind it")
    else:
        return url
    return None


def at(place: str, name: str) -> str:
    shown = name if _TOKEN.fullmatch(name) else f"{name!r:.60}"
    return f"{place}.{shown}" if place else shown


KINDS = {type(None): "null", int: "a number", float: "a number", str: "text", list: "a list"}


def kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "an object" if isinstance(value, dict) else KINDS.get(type(value), type(value).__name__)
