"""The durations of a leader and how they must relate; every problem is reported at once, before any I/O."""

from __future__ import annotations

from dataclasses import dataclass

from fencehold.model import durations
from fencehold.model.durations import Duration
from fencehold.model.errors import ConfigurationError

LEASE_S_MIN = 0.1  # below this, scheduling noise of an ordinary machine is longer than the lease
MARGIN_S_MAX = 1.0
CALL_LIMIT_S_MAX = 5.0


@dataclass(frozen=True)
class LeaderSettings:
    """Checked: renew_every < lease - margin, and a call may fail twice before the lease is in danger."""

    lease_s: float
    renew_every_s: float
    acquire_every_s: float
    margin_s: float
    stall_limit_s: float
    drop_on_error: bool = False
    release_on_stop: bool = True

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
        raise ConfigurationError(
            "Leader settings cannot work: " + "; ".join(problems) + ".",
            hint="A lease of 30 s with everything else left to its default is a good start.",
            code="bad_settings" if len(problems) > 1 or "not a duration" not in problems[0] else "bad_duration",
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
