"""The systems under measurement: ours, the bare loop, the peers; each a command with the verbs of peers/hits.py."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.outbox.environments import packages_of, python_of

PEERS = Path(__file__).parent / "peers"


@dataclass(frozen=True)
class Guarantees:
    """What experiments showed, with each system's defaults: a worker frozen past its lease that thaws and finishes
    first; a healthy handler of 14 s under a lease of 4 s, awaiting or blocking its event loop; a worker killed."""

    zombie: str
    slow: str
    blocking: str
    recovery: str

    def line(self) -> str:
        slow = f"slow healthy job started {self.slow} ({self.blocking} if it blocks its loop)"
        return f"zombie's result {self.zombie}; {slow}; run again after SIGKILL: {self.recovery}"


@dataclass(frozen=True)
class System:
    """`c10_per_s` and `best_per_s` are rough rates: from them follows how many events make a drain of some seconds."""

    name: str
    command: tuple[str, ...]
    c10_per_s: int
    best_per_s: int
    guarantees: Guarantees | None = None
    best_batch: int = 1000
    requirements: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def label(self) -> str:
        return self.requirements[0].replace("==", " ") if self.requirements else self.name

    def events(self, mode: str, seconds: float) -> int:
        return max(300, 100 * round((self.best_per_s if mode == "best" else self.c10_per_s) * seconds / 100))

    def environ(self, dsn: str, **more: str) -> dict[str, str]:
        return {**os.environ, "BENCH_DSN": dsn, "BENCH_BATCH": str(self.best_batch), **self.environment, **more}

    def installed(self) -> System:
        """Ready to run; CannotInstall when its packages cannot be had."""
        if not self.requirements:
            return self
        python = python_of(self.name, self.requirements)
        return replace(self, command=(str(python), *self.command))


def ours_on_uvloop() -> System:
    """The same package and interpreter, with nothing but uvloop added to the path."""
    packages = packages_of(python_of("uvloop", ("uvloop",)))
    return replace(OURS, name="fencehold (uvloop)", environment={"BENCH_LOOP": "uvloop", "PYTHONPATH": str(packages)})


def own(module: str) -> tuple[str, ...]:
    return sys.executable, "-m", f"bench.outbox.{module}"


def script(name: str) -> tuple[str, ...]:
    return (str(PEERS / f"{name}_peer.py"),)


OURS = System(
    "fencehold", own("ours"), 8_000, 24_000,
    Guarantees(
        # With the default max_processing the experiment's own 14 s, under a lease of 4 s, would be aborted at 12 s.
        "refused", "once within max_processing (3 x lease unless raised; then aborted and retried)", "once",
        "after lease + reaper interval (30 s + 10 s)",
    ),
)  # fmt: skip
LISTS = replace(OURS, name="fencehold (handler of lists)", environment={"BENCH_LISTS": "1"})
BARE = System("bare loop", own("bare"), 10_000, 34_000)
PGQUEUER = System(
    "pgqueuer", script("pgqueuer"), 2_300, 12_000, Guarantees("accepted", "once", "twice", "after 30 to 60 s"),
    2000, ("pgqueuer==1.6.0", "asyncpg", "uvloop"),
)  # fmt: skip
PROCRASTINATE = System(
    "procrastinate", script("procrastinate"), 240, 300, Guarantees("accepted", "once", "twice", "never"),
    20, ("procrastinate==3.10.0", "psycopg[binary]"),
)  # fmt: skip
TXOUTBOX = System(
    "txoutbox", script("txoutbox"), 3_300, 17_000,
    Guarantees("refused", "5 to 6 times in 34 s, never finished", "3 to 6 times", "after 30 to 60 s"),
    1000, ("txoutbox==0.2.2", "asyncpg", "uvloop"),
)  # fmt: skip
CHANCY = System(
    "chancy", script("chancy"), 500, 1_800, Guarantees("refused", "once", "3 to 6 times", "after 2 to 3 min"),
    1000, ("chancy==0.26.0",),
)  # fmt: skip
FASTSTREAM = System(
    "faststream-outbox", script("faststream"), 740, 3_500,
    Guarantees("refused", "5 to 6 times in 34 s, never finished", "3 to 6 times", "after 30 to 60 s"),
    500, ("faststream-outbox==0.19.0", "asyncpg", "uvloop"),
)  # fmt: skip

QUICK_PEERS = (PGQUEUER, PROCRASTINATE, TXOUTBOX)
ALL_PEERS = (*QUICK_PEERS, CHANCY, FASTSTREAM)
