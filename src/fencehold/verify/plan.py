"""The settings of one run of `fencehold verify`, checked before anything is made, and all limits of a run."""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from fencehold.connect import label, scheme
from fencehold.model.durations import Duration, seconds
from fencehold.model.errors import ConfigurationError

FAULTS = ("kill", "pause", "cut", "restart-client", "slow", "clock")
LEASES = ("alpha", "beta")
LOCK = "lock"  # the fencing epoch of the advisory lock
ITEM_KIND = "verify"
ITEMS = ("item-0", "item-1", "item-2", "item-3")
PREFIX = "fencehold_verify_"
KNOWN = ("sqlite", "postgresql")

FOR_S = (3.0, 3600.0)
CONTENDERS = (2, 16)
LEASE_S = (1.0, 2.0)
EVENTS_MAX = 2000
WRITES_MAX = 10_000
#: Sessions of one contender with a network database: keeper and listener, fences, outbox, items, lock, its own writes.
CONNECTIONS_PER_CONTENDER = 16
#: A run that has not put everything to the test when its time is over goes on for so long at most.
EXTRA_S = 30.0
DRAIN_LIMIT_S = 20.0
STOP_LIMIT_S = 10.0
HOOK_LIMIT_S = 60.0


@dataclass(frozen=True)
class Plan:
    """All settings of one run."""

    url: str
    for_s: float = 60.0
    contenders: int = 5
    faults: tuple[str, ...] = FAULTS
    pause_hook: str | None = None
    failover_hook: str | None = None
    hook_limit_s: float = HOOK_LIMIT_S
    #: Part of the names of the run's schema or file, its lock and its events: two runs at once stay apart.
    mark: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def database(self) -> str:
        return scheme(self.url)

    @property
    def label(self) -> str:
        return label(self.url)

    @property
    def lease_s(self) -> float:
        """Return the duration of a lease in seconds: short, so that a run has many leases."""
        return min(max(self.for_s / 30, LEASE_S[0]), LEASE_S[1])

    @property
    def write_every_s(self) -> float:
        return max(0.1, self.for_s * len(LEASES) / (WRITES_MAX / 2))

    @property
    def events_max(self) -> int:
        return int(min(EVENTS_MAX, 40 * self.for_s))


def plan(
    url: str,
    *,
    lasts: Duration = "60s",
    contenders: int = 5,
    faults: str = ",".join(FAULTS),
    pause_hook: str | None = None,
    failover_hook: str | None = None,
    hook_limit: Duration = HOOK_LIMIT_S,
) -> Plan:
    """Check the settings and return them as a plan. Raises ConfigurationError if a setting is wrong; opens nothing."""
    made = Plan(
        url, _within(lasts), _count(contenders), known_faults(faults), pause_hook, failover_hook,
        seconds(hook_limit, "--hook-limit"),
    )  # fmt: skip
    if made.database not in KNOWN:
        raise ConfigurationError(
            f"verify cannot test {made.database}:// databases: it knows SQLite and PostgreSQL.",
            hint="The conformance suite of fencehold.testing tests the others.",
            code="verify_unsupported",
        )
    return made


def known_faults(text: str) -> tuple[str, ...]:
    """Return the faults of a comma-separated list, each once; `none` means no fault.

    Raises ConfigurationError if the text names an unknown fault, or nothing.
    """
    asked = [word.strip().lower() for word in text.split(",") if word.strip()]
    if asked == ["none"]:
        return ()
    unknown = [word for word in asked if word not in FAULTS]
    if unknown or not asked:
        raise ConfigurationError(_unknown(unknown), hint=f"Known: {', '.join(FAULTS)}; or none.", code="unknown_fault")
    return tuple(dict.fromkeys(asked))


def _unknown(words: Sequence[str]) -> str:
    if not words:
        return "--faults names no fault."
    near = difflib.get_close_matches(words[0], FAULTS, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return f"--faults: there is no fault {', '.join(map(repr, words))}.{meant}"


def _within(given: Duration) -> float:
    for_s = seconds(given, "--for")
    least, most = FOR_S
    if not least <= for_s <= most:
        raise ConfigurationError(
            f"--for is {for_s:g} s; it must be from {least:g} s to {most / 60:g} min.",
            hint="Give for example --for 10s for a first look, or leave it out for 60 s.",
            code="bad_duration",
        )
    return for_s


def _count(contenders: int) -> int:
    least, most = CONTENDERS
    if not least <= contenders <= most:
        raise ConfigurationError(
            f"--contenders is {contenders}; it must be from {least} to {most}.",
            hint=f"Each contender may open up to {CONNECTIONS_PER_CONTENDER} connections.",
            code="bad_count",
        )
    return contenders
