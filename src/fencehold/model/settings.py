"""What the settings of leaders, outboxes and items share.

That is how long a lease is trusted, and a check that collects all problems and names them in one error.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencehold.model import durations
from fencehold.model.durations import Duration
from fencehold.model.errors import ConfigurationError

LEASE_S_MIN = 0.1  # below this, scheduling noise of an ordinary machine is longer than the lease
MARGIN_S_MAX = 1.0
CALL_LIMIT_S_MAX = 5.0
HEARTBEAT_PART = 0.3  # of the lease; the rule is: strictly below a third
GOOD_START = "A lease of {:.0f} s with everything else left to its default is a good start."


def call_limit_s(lease_s: float, renew_every_s: float, margin_s: float) -> float:
    """Return the time limit of one attempt to renew.

    It is at most a third of the time from when a renewal is due until this process stops trusting its lease.
    """
    return min(CALL_LIMIT_S_MAX, (lease_s - margin_s - renew_every_s) / 3)


@dataclass(frozen=True)
class HeartbeatSettings:
    """The durations of leases that one heartbeat renews together: those of events and of items."""

    lease_s: float
    heartbeat_every_s: float

    @property
    def margin_s(self) -> float:
        """Return how many seconds before the lease's end this process stops trusting the lease."""
        return min(MARGIN_S_MAX, self.lease_s / 10)

    @property
    def trusted_s(self) -> float:
        """Return how many seconds a lease is trusted, counted from when this process asked for it."""
        return self.lease_s - self.margin_s

    @property
    def call_limit_s(self) -> float:
        return call_limit_s(self.lease_s, self.heartbeat_every_s, self.margin_s)


class Check:
    """Collects problems of settings. `done` raises one ConfigurationError that names all of them."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._problems: list[str] = []

    def seconds(self, value: Duration | None, what: str, instead: float) -> float:
        return instead if value is None else self.given_seconds(value, what, instead)

    def given_seconds(self, value: Duration, what: str, instead: float) -> float:
        try:
            return durations.seconds(value, what)
        except ConfigurationError as error:
            self._problems.append(error.message.rstrip("."))
            return instead

    @property
    def is_wrong(self) -> bool:
        return bool(self._problems)

    def count(self, value: object, what: str, least: int, most: int) -> None:
        right = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        self.that(right, f"{what} is {value!r}; it must be a whole number from {least} to {most}")

    def at_most(self, value: object, what: str, most: object, of_what: str) -> None:
        if isinstance(value, int) and isinstance(most, int):
            self.that(value <= most, f"{what} ({value}) must not be above {most}, the {of_what}")

    def heartbeat(self, lease_s: float, heartbeat_s: float) -> None:
        """Note a problem if the lease is too short, or is not renewed often enough: at least three times."""
        self.lease(lease_s)
        self.that(
            heartbeat_s < lease_s / 3,
            f"heartbeat_every ({heartbeat_s:g} s) must be below a third of lease ({lease_s:g} s)",
        )

    def lease(self, lease_s: float) -> None:
        problem = f"lease is {lease_s:g} s; below {LEASE_S_MIN:g} s it cannot be renewed in time"
        self.that(lease_s >= LEASE_S_MIN, problem)

    def that(self, holds: bool, problem: str) -> None:
        if not holds:
            self._problems.append(problem)

    def done(self, hint: str, code_for_duration: str = "bad_settings") -> None:
        """Raise one ConfigurationError that names all problems; do nothing if there is none.

        `code_for_duration`: the error's code if the only problem is a value that is no duration.
        """
        if self._problems:
            message = f"{self._whose} settings cannot work: {'; '.join(self._problems)}."
            is_duration = len(self._problems) == 1 and "not a duration" in message
            code = code_for_duration if is_duration else "bad_settings"
            raise ConfigurationError(message, hint=durations.HINT if is_duration else hint, code=code)
