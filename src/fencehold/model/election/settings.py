"""The durations of a leader and how they must relate.

They are checked before any I/O, and one error names every problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fencehold.model.durations import Duration
from fencehold.model.settings import GOOD_START, MARGIN_S_MAX, Check, call_limit_s

#: What a leader does when the store does not answer as it should: try again until its deadline, or give up the term.
OnError: TypeAlias = Literal["retry", "drop"]


@dataclass(frozen=True)
class LeaderSettings:
    """The checked durations of a leader: renew_every < lease - margin.

    Two renewals in a row may fail before the lease is in danger.
    """

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
        """Return the time limit of one acquire.

        It is shorter for a caller that waits only a short time for the lease, so that the store's answer, with the
        reason of a refusal, arrives while the caller still waits.
        """
        given_s = self.acquire_limit_given_s
        return self.call_limit_s if given_s is None else min(given_s, self.call_limit_s)

    @property
    def call_limit_s(self) -> float:
        return call_limit_s(self.lease_s, self.renew_every_s, self.margin_s)


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
    """Return the settings with defaults filled in. Raises one ConfigurationError that names every problem."""
    check = Check("Leader")
    lease_s = check.given_seconds(lease, "lease", 30.0)
    renew_s = check.seconds(renew_every, "renew_every", lease_s / 3)
    acquire_s = check.seconds(acquire_every, "acquire_every", lease_s / 2)
    margin_s = check.seconds(margin, "margin", min(MARGIN_S_MAX, lease_s / 10))
    stall_s = check.seconds(stall_limit, "stall_limit", lease_s * 3)
    if not check.is_wrong:
        check.lease(lease_s)
        least = f"lease ({lease_s:g} s)" if renew_s >= lease_s else f"lease - margin ({lease_s - margin_s:g} s)"
        check.that(renew_s < lease_s - margin_s, f"renew_every ({renew_s:g} s) must be below {least}")
        check.that(stall_s >= renew_s, f"stall_limit ({stall_s:g} s) must not be below renew_every ({renew_s:g} s)")
    check.that(on_error in ("retry", "drop"), f'on_error is {on_error!r}; it must be "retry" or "drop"')
    check.done(GOOD_START.format(30), code_for_duration="bad_duration")
    return LeaderSettings(lease_s, renew_s, acquire_s, margin_s, stall_s, on_error == "drop", release_on_stop)
