"""What is done to the workers and the database of a crash run, and the processes it is done to."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.fencehold.runtime.outbox.crash_run.referee import Mark
from tests.fencehold.runtime.outbox.crash_run.worker import AIMED
from tests.servers.process import dies_with_us

ROOT = Path(__file__).parents[5]
BAG = ("kill", "kill", "stop", "stop", "restart")
MOMENTS = ("", "", "before", "after")  # half of the blows to a worker are aimed
HOLD_LEASES = (0.5, 2.0)
WORDS_OF_A_MARK = 5


@dataclass(frozen=True)
class Blow:
    """One piece of trouble: what, to which worker, when, and how exactly."""

    at_s: float
    kind: str
    worker: int = 0
    moment: str = ""  # "before" it records, "after" it claimed; "": now
    hold_s: float = 0.0
    crash: bool = False


def blows(seed: int, seconds: float, workers: int, lease_s: float, restarts: bool) -> list[Blow]:
    """One in every second, at a random moment of it; of each five two are kills, two stops and one a restart."""
    rng = random.Random(f"blows {seed}")
    bag: list[str] = []
    found: list[Blow] = []
    for second in range(int(seconds)):
        if not bag:
            bag = [kind for kind in BAG if restarts or kind != "restart"]
            rng.shuffle(bag)
        found.append(
            Blow(
                at_s=second + rng.uniform(0.0, 0.9),
                kind=bag.pop(),
                worker=rng.randrange(workers),
                moment=rng.choice(MOMENTS),
                hold_s=rng.uniform(*HOLD_LEASES) * lease_s,
                crash=rng.random() < 0.5,
            )
        )
    return found


class Hand:
    """One worker process and its file."""

    def __init__(self, name: str, command: list[str], file: Path) -> None:
        self.name, self.file = name, file
        self.was_killed = False
        self._errors = file.with_suffix(".err")
        with self._errors.open("wb") as errors:
            # A session of its own: a Ctrl-C is ours to hear, not theirs.
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, cwd=ROOT, start_new_session=True,
                preexec_fn=dies_with_us(signal.SIGKILL),
            )  # fmt: skip
        self._process = psutil.Process(self._child.pid)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it lives."""
        return self._child.poll()

    @property
    def is_ready(self) -> bool:
        """Its signal handlers are in place, and it works."""
        return self.file.exists() and self.file.stat().st_size > 0

    @property
    def is_frozen(self) -> bool:
        try:
            return self._process.status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:
            return False

    def send(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(signum)

    def end(self, limit_s: float) -> int | None:
        """In good order; None when it takes too long."""
        try:
            return self._child.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()

    def complaint(self) -> str:
        return self._errors.read_text(errors="replace")[-2000:]

    def marks(self) -> list[Mark]:
        return [
            Mark(words[0], words[1], words[2], int(words[3]), float(words[4]))
            for words in self._lines("SEF")
            if len(words) == WORDS_OF_A_MARK
        ]

    def facts(self) -> list[str]:
        lost = [f"event_lost {reason}" for _, reason in self.lost()]
        return lost + [" ".join(words[1:]) for words in self._lines("X")]

    def lost(self) -> list[tuple[str, str]]:
        """Events it says it lost, each with the reason."""
        return [(words[1], words[2]) for words in self._lines("L")]

    def _lines(self, kinds: str) -> list[list[str]]:
        if not self.file.exists():
            return []
        # What follows the last newline was cut off by a kill.
        lines = self.file.read_text(errors="replace").split("\n")[:-1]
        return [line.split(" ") for line in lines if line[:1] in kinds]


@dataclass
class Tally:
    """What was done, as it was seen to happen."""

    kills: int = 0
    stops: int = 0
    restarts: list[tuple[float, float]] = field(default_factory=list)  # when it went down, when it was up again
    crashes: int = 0
    deaths: list[str] = field(default_factory=list)  # of workers nobody killed


class Crew:
    """Always as many workers as asked for: one that dies is replaced at once, one that freezes is thawed in time."""

    def __init__(self, size: int, start: Callable[[int], Hand], tally: Tally, hold_s: float) -> None:
        self._start, self._tally, self._hold_s = start, tally, hold_s
        self._holds: dict[int, float] = {}  # by slot: for how long the next freeze lasts
        self._thaws: dict[int, float] = {}
        self._started = 0
        self.all: list[Hand] = []
        self.slots = [self._next() for _ in range(size)]

    def strike(self, blow: Blow) -> None:
        hand = self.slots[blow.worker]
        signum: int = signal.SIGKILL if blow.kind == "kill" else signal.SIGSTOP
        if blow.kind == "kill":
            hand.was_killed = True
        else:
            self._holds[blow.worker] = blow.hold_s
        if blow.moment and hand.is_ready:
            signum = next(number for number, wanted in AIMED.items() if wanted == (signum, blow.moment))
        hand.send(signum)

    def tend(self, now_s: float) -> None:
        for slot, hand in enumerate(self.slots):
            if hand.code is not None:
                self._replace(slot, hand)
            elif slot in self._thaws:
                if now_s >= self._thaws[slot]:
                    del self._thaws[slot]
                    hand.send(signal.SIGCONT)
            elif hand.is_frozen:
                self._tally.stops += 1
                self._thaws[slot] = now_s + self._holds.pop(slot, self._hold_s)

    def thaw_all(self) -> None:
        self._thaws.clear()
        for hand in self.slots:
            hand.send(signal.SIGCONT)

    def stop(self, limit_s: float) -> None:
        """In good order; whoever does not manage that is named."""
        for hand in self.slots:
            hand.send(signal.SIGTERM)
        for hand in self.slots:
            code = hand.end(limit_s)
            if code:
                self._tally.deaths.append(f"{hand.name} ended with {code} at its stop: {hand.complaint()}")
            elif code is None:
                self._tally.deaths.append(f"{hand.name} did not stop within {limit_s:g} s: {hand.complaint()}")

    def kill_all(self) -> None:
        for hand in self.slots:
            hand.kill()

    def _replace(self, slot: int, hand: Hand) -> None:
        if hand.was_killed and hand.code == -signal.SIGKILL:
            self._tally.kills += 1
        else:
            self._tally.deaths.append(f"{hand.name} ended by itself with {hand.code}: {hand.complaint()}")
        self._thaws.pop(slot, None)
        self.slots[slot] = self._next()

    def _next(self) -> Hand:
        self._started += 1
        hand = self._start(self._started)
        self.all.append(hand)
        return hand


def worker_command(url: str, name: str, file: Path, *more: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "tests.fencehold.runtime.outbox.crash_run.worker",
        url,
        "--name",
        name,
        "--file",
        os.fspath(file),
        *more,
    ]
