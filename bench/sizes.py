"""How much of everything a run measures."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Sizes:
    handovers: int = 200
    polls: int = 20
    takeovers: int = 15
    idle_s: float = 60.0
    rate_rounds: int = 15
    rate_cycles: int = 100
    leases: int = 1000
    renewal_rounds: int = 3


QUICK = Sizes(
    handovers=40, polls=5, takeovers=4, idle_s=30.0, rate_rounds=5, rate_cycles=50, leases=1000, renewal_rounds=1
)


def sizes(*, quick: bool, rounds: int | None) -> Sizes:
    """`rounds` replaces the number of hand-overs, of takeovers and of rate rounds."""
    chosen = QUICK if quick else Sizes()
    if rounds is None:
        return chosen
    return replace(chosen, handovers=rounds, takeovers=rounds, rate_rounds=rounds)
