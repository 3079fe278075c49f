"""Records all reports of the contenders and all faults, with their times; can wait for a report."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from fencehold.ports.time_limit import TimeLimit
from fencehold.testing.history import boottime_s


@dataclass(frozen=True, slots=True)
class Said:
    """One line that a contender reported: who reported it, its kind, the machine's time and further fields."""

    who: str
    kind: str
    at_s: float
    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


@dataclass
class Fault:
    """One fault that was injected. `who` is the contender; empty for a fault that concerns all."""

    kind: str
    who: str
    detail: str
    began_s: float
    ended_s: float | None = None


Found = Callable[[Said], bool]


@dataclass
class Journal:
    """The record of one run: reports, faults and notes. It calls `on_fault` when a fault begins."""

    on_fault: Callable[[Fault], None] = lambda fault: None
    began_s: float = field(default_factory=boottime_s)
    said: list[Said] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    died_s: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    events_added: list[str] = field(default_factory=list)
    _leaders: dict[str, tuple[int, str]] = field(default_factory=dict)
    _waiting: list[tuple[Found, asyncio.Future[Said]]] = field(default_factory=list)

    def hear_line(self, who: str, line: bytes) -> None:
        """Record one report, given as the line of JSON that `messages.tell` writes.

        Raises ValueError or KeyError if it is torn.
        """
        fields = json.loads(line)
        self.hear(Said(who, fields.pop("kind"), fields.pop("at_s"), fields))

    def hear(self, said: Said) -> None:
        self.said.append(said)
        self.counts[said.kind] += 1
        if said.kind == "acquired" and said["epoch"] > self._leaders.get(said["name"], (0, ""))[0]:
            self._leaders[said["name"]] = (said["epoch"], said.who)
        for found, answer in self._waiting:
            if not answer.done() and found(said):
                answer.set_result(said)

    def of_kind(self, *kinds: str) -> list[Said]:
        return [said for said in self.said if said.kind in kinds]

    def is_telling(self, has_locks: bool) -> bool:
        """Whether everything that a verdict needs has happened at least once, judged by the contenders' reports."""
        stale = {said["verb"] for said in self.of_kind("stale")} >= {"WRITE", "RENEW", "COMPLETE", "SAVE"}
        terms = Counter(name for name, _ in {(said["name"], said["epoch"]) for said in self.of_kind("trusts")})
        led = len(terms) > 1 and min(terms.values()) > 2
        return stale and led and (not has_locks or self.counts["lock_held"] > 1)

    def leader_of(self, name: str) -> tuple[int, str]:
        """Return the newest epoch that was reported for this lease, and the contender that has it.

        Returns (0, "") if no epoch was reported.
        """
        return self._leaders.get(name, (0, ""))

    def until(self, found: Found, limit_s: float) -> Coroutine[Any, Any, Said | None]:
        """Return the first report, from this call on, that `found` accepts; None if there is none within `limit_s`."""
        entry = (found, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        return self._awaited(entry, limit_s)

    async def _awaited(self, entry: tuple[Found, asyncio.Future[Said]], limit_s: float) -> Said | None:
        try:
            async with TimeLimit(max(0.01, limit_s)):
                return await entry[1]
        except TimeoutError:
            return None
        finally:
            self._waiting.remove(entry)

    def begin(self, kind: str, who: str, detail: str) -> Fault:
        fault = Fault(kind, who, detail, boottime_s())
        self.faults.append(fault)
        self.on_fault(fault)
        return fault

    def end(self, fault: Fault, outcome: str = "") -> None:
        fault.ended_s = boottime_s()
        if outcome:
            fault.detail += f"; {outcome}"

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
