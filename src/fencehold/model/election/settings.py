"""The durations of a leader and how they must relate; every problem is reported at once, before any I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fencehold.model import durations
from fencehold.model.durations import Duration
from fencehold.model.errors import ConfigurationError

LEASE_S_MIN = 0.1  # below this, scheduling noise of an ordinary machine is longer than the lease
MARGIN_S_MAX = 1.0
CALL_LIMIT_S_MAX = 5.0

#: What a leader does when the store does not answer as it should: try again until its deadline, or give up the term.
OnError: TypeAlias = Literal["retry", "drop"]


@dataclass(frozen=True)
class LeaderSettings:
    """Checked settings: renew_every < lease - margin, and a call may fail twice before the lease is in danger."""

    lease_s: float
    renew_every_s: float
    acquire_every_s: float
    margin_s: float
    stall_limit_s: float
    drop_on_error: bool = False
    release_on_stop: bool = True
    acquire_limit_given_s: float | None = None

    @property
    def acquire_limit_s(self) -> float:
        """The limit of one acquire. A caller that waits for a short time gets a shorter one.

        So the caller still gets the reason why the lease was not granted.
        """
        given_s = self.acquire_limit_given_s
        return self.call_limit_s if given_s is None else min(given_s, self.call_limit_s)

    @property
    def call_limit_s(self) -> float:
        """One attempt gets at most a third of the time between a due renewal and the local deadline."""
        return call_limit_s(self.lease_s, self.renew_every_s, self.margin_s)


def call_limit_s(lease_s: float, renew_every_s: float, margin_s: float) -> float:
    return min(CALL_LIMIT_S_MAX, (lease_s - margin_s - renew_every_s) / 3)


def leader_settings(
    *,
    lease: Duration = 30,
    renew_every: Duration | None = None,
    acquire_every: Duration | None = None,
    margin: Duration | None = None,
    stall_limit: Duration | None = None,
    on_error: str = "retry",
    release_on_stop: bool = True,
) -> LeaderSettings:
    """Settings with defaults filled in, or one ConfigurationError that names every problem."""
    problems: list[str] = []
    lease_s = _seconds(lease, "lease", 30.0, problems)
    given = {
        "renew_every": (renew_every, lease_s / 3),
        "acquire_every": (acquire_every, lease_s / 2),
        "margin": (margin, min(MARGIN_S_MAX, lease_s / 10)),
        "stall_limit": (stall_limit, lease_s * 3),
    }
    got = {k: d if v is None else _seconds(v, k, d, problems) for k, (v, d) in given.items()}
    if not problems:
        problems += _wrong_relations(lease_s, got)
    if on_error not in ("retry", "drop"):
        problems.append(f'on_error is {on_error!r}; it must be "retry" or "drop"')
    if problems:
        is_duration = len(problems) == 1 and "not a duration" in problems[0]
        good_start = "A lease of 30 s with everything else left to its default is a good start."
        raise ConfigurationError(
            "Leader settings cannot work: " + "; ".join(problems) + ".",
            hint=durations.HINT if is_duration else good_start,
            code="bad_duration" if is_duration else "bad_settings",
        )
    return LeaderSettings(
        lease_s, got["renew_every"], got["acquire_every"], got["margin"], got["stall_limit"],
        on_error == "drop", release_on_stop,
    )  # fmt: skip


def _seconds(value: Duration, what: str, instead: float, problems: list[str]) -> float:
    try:
        return durations.seconds(value, what)
    except ConfigurationError as error:
        problems.append(error.message.rstrip("."))
        return instead


def _wrong_relations(lease_s: float, got: dict[str, float]) -> list[str]:
    renew_s, margin_s = got["renew_every"], got["margin"]
    problems = []
    if lease_s < LEASE_S_MIN:
        problems.append(f"lease is {lease_s:g} s; below {LEASE_S_MIN:g} s it cannot be renewed in time")
    if renew_s >= lease_s:
        problems.append(f"renew_every ({renew_s:g} s) must be below lease ({lease_s:g} s)")
    elif renew_s >= lease_s - margin_s:
        problems.append(f"renew_every ({renew_s:g} s) must be below lease - margin ({lease_s - margin_s:g} s)")
    if got["stall_limit"] < renew_s:
        problems.append(f"stall_limit ({got['stall_limit']:g} s) must not be below renew_every ({renew_s:g} s)")
    return problems
