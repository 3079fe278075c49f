"""Injects faults into the contenders: kills, pauses at the worst moments, broken and slow networks, stepped clocks.

A pause comes at a chosen moment. A contender reports that it is about to write, before or after it takes the fence, and
is frozen right there until another contender has taken over. Random pauses almost never meet that moment, and prove
nothing about a fence. A moment at which a contender stops on order, to be frozen there, is called a window.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from fencehold.model.errors import Unavailable
from fencehold.testing.history import boottime_s
from fencehold.verify.contender_processes import ContenderProcesses, Member
from fencehold.verify.journal import Fault, Journal
from fencehold.verify.plan import EXTRA_S, LEASES, Plan
from fencehold.verify.scratch.place import Scratch

AIMS = ("fenced", "checked", "item", "written", "event")
CLOCK_STEPS_S = (-86_400.0, -3600.0, 3600.0, 86_400.0)
REST_LEASES = 0.2
EXTRA_STEP_S = 0.5


def impossible(plan: Plan, scratch: Scratch) -> dict[str, str]:
    """Return the faults of the plan that are impossible with this database or system, each with the reason."""
    found = {}
    if not scratch.servers:
        found["cut"] = "SQLite has no network that could be cut"
        found["clock"] = "SQLite's store time is the machine's own clock, and verify does not set that"
    if sys.platform == "win32":
        found["pause"] = "there is no SIGSTOP on this system"
    return {fault: reason for fault, reason in found.items() if fault in plan.faults}


@dataclass
class Aims:
    """What all injectors share: a number for each window, and the order of the moments at which a contender freezes.

    A moment names a place between a check and a write. A window is one stop of one contender there, with its number.
    `next` returns the moment to try; `met` puts a moment that was met to the end of the list, so a moment that was
    missed comes again soon.
    """

    numbers: Iterator[int] = field(default_factory=itertools.count)
    turns: Iterator[int] = field(default_factory=itertools.count)
    moments: deque[str] = field(default_factory=lambda: deque(AIMS))

    def next(self) -> str:
        moment = self.moments.popleft()
        self.moments.insert(1, moment)
        return moment

    def met(self, moment: str) -> None:
        self.moments.remove(moment)
        self.moments.append(moment)


class FaultInjector:
    """Injects one fault after the other, each into one contender, until it is cancelled.

    Several injectors may run at once.
    """

    def __init__(
        self, plan: Plan, scratch: Scratch, contenders: ContenderProcesses, journal: Journal, aims: Aims
    ) -> None:
        self._scratch, self._contenders, self._journal, self._aims = scratch, contenders, journal, aims
        self._lease_s = plan.lease_s
        cannot = impossible(plan, scratch)
        self._kinds = [fault for fault in plan.faults if fault not in cannot]

    async def run(self) -> None:
        if not self._kinds:
            return
        bag: list[str] = []
        while True:
            if not bag:
                bag = [*self._kinds, *(["pause", "pause"] if "pause" in self._kinds else [])]
                random.shuffle(bag)
            with suppress(Unavailable):  # a hook, or something else, has stopped the server: nothing to lock there
                await self._do(bag.pop())
            await asyncio.sleep(self._lease_s * REST_LEASES)

    async def _do(self, kind: str) -> None:
        match kind:
            case "pause":
                await self._pause(self._aims.next())
            case "slow" if next(self._aims.turns) % 2 == 0:
                await self._lock_wait()
            case _:
                member = await self._anybody(leader=random.random() < 0.5)
                if member is None:
                    return
                async with member.lock:
                    await {
                        "kill": self._kill, "restart-client": self._restart, "cut": self._cut, "slow": self._slow,
                        "clock": self._clock,
                    }[kind](member)  # fmt: skip

    async def _anybody(self, leader: bool) -> Member | None:
        """Return a member (a contender) without a fault, if `leader` is true preferably one that leads.

        Returns None if fewer than two members are without a fault: one member always stays so.
        """
        free = [member for member in self._contenders.members if not member.lock.locked() and member.is_alive]
        if len(free) < 2:
            await asyncio.sleep(self._lease_s / 10)
            return None
        leading = [member for member in free if member.who in {self._journal.leader_of(name)[1] for name in LEASES}]
        return random.choice(leading) if leader and leading else random.choice(free)

    # --- processes

    async def _kill(self, member: Member) -> None:
        fault = self._journal.begin("kill", member.who, "SIGKILL")
        await member.kill()
        await member.start()
        self._journal.end(fault, f"{member.who} started")

    async def _restart(self, member: Member) -> None:
        fault = self._journal.begin("restart-client", member.who, "SIGTERM")
        in_order = await member.stop()
        await member.start()
        self._journal.end(fault, f"{'left in order' if in_order else 'had to be killed'}; {member.who} started")

    async def _clock(self, member: Member) -> None:
        offset_s = random.choice(CLOCK_STEPS_S)
        fault = self._journal.begin("clock", member.who, f"its wall clock stepped by {offset_s:+.0f} s")
        member.order("clock", offset_s=offset_s)
        await asyncio.sleep(self._lease_s)
        member.order("clock", offset_s=0)
        self._journal.end(fault)

    # --- aimed pauses

    async def _pause(self, aim: str) -> None:
        if aim in ("item", "event"):
            member = await self._anybody(leader=False)
            if member is not None:
                async with member.lock:
                    await self._pause_holder(member, aim)
            return
        name = random.choice(LEASES)
        member = self._contenders.of(self._journal.leader_of(name)[1])
        if member is None or member.lock.locked():
            await asyncio.sleep(self._lease_s / 10)
            return
        async with member.lock:
            await self._pause_leader(member, name, aim)

    async def _opened(self, member: Member, do: str, **fields: str) -> tuple[int, int] | None:
        """Order the member to stop at a window, a moment between a check and a write, and wait until it is there.

        Returns the window's number and the epoch of the member's lease there (0: it has no epoch). Returns None if the
        member did not report the window in time, or has nothing to write.
        """
        number, who = next(self._aims.numbers), member.who
        opening = self._journal.until(
            lambda said: said.who == who and said.kind in ("window", "no_window") and said["window"] == number,
            2 * self._lease_s,
        )
        member.order(do, window=number, **fields)
        said = await opening
        if said is None or said.kind == "no_window":
            return None
        return number, int(said.fields.get("epoch", 0))

    async def _pause_leader(self, member: Member, name: str, moment: str) -> None:
        opened = await self._opened(member, "leader", lease=name, moment=moment)
        if opened is None:
            return
        number, epoch = opened
        self._aims.met(moment)
        words = {"checked": "between check and write", "fenced": "between fence and write"}
        where = words.get(moment, "between write and commit")
        fault = self._journal.begin("pause", member.who, f"frozen {where} of {name}, epoch {epoch}")
        still = await member.freeze()
        taken = await self._taken_over(name, epoch, moment)
        member.order("go", window=number, taken=taken)
        outcome = taken or "nobody could take over meanwhile" if still else "it did not stand still"
        await self._thaw(member, number, fault, outcome)

    async def _taken_over(self, name: str, epoch: int, moment: str) -> str:
        """Wait for a takeover while the member is frozen.

        Returns a text that names who took over; empty if nobody did.
        """
        holds_the_file = not self._scratch.servers and moment in ("fenced", "written")
        limit_s = (1.3 if holds_the_file else 3.0) * self._lease_s
        new = await self._journal.until(
            lambda said: said.kind == "granted" and said["name"] == name and said["epoch"] > epoch, limit_s
        )
        if new is None:
            return ""
        await self._journal.until(
            lambda said: said.kind == "write" and said["name"] == name and said["epoch"] > epoch, self._lease_s
        )
        return f"{new.who} had taken over with epoch {new['epoch']}"

    async def _thaw(self, member: Member, number: int, fault: Fault, outcome: str = "") -> None:
        """Wake the frozen member, record the fault's end, and wait until the member has done what the freeze delayed.

        `number` is that of the freeze in the journal; `outcome` is the text with which the fault's end is recorded.
        """
        late = self._journal.until(lambda said: said.kind == "late" and said["window"] == number, 4 * self._lease_s)
        member.thaw()
        self._journal.end(fault, outcome)
        await late

    async def _pause_holder(self, member: Member, role: str) -> None:
        opened = await self._opened(member, role)
        if opened is None:
            return
        self._aims.met(role)
        what = "an item's save" if role == "item" else "a completion"
        fault = self._journal.begin("pause", member.who, f"frozen before {what}")
        await member.freeze()
        await asyncio.sleep(1.5 * self._lease_s)
        member.order("go", window=opened[0], taken="")
        await self._thaw(member, opened[0], fault)

    # --- network and locks

    async def _cut(self, member: Member) -> None:
        how = random.choice(("reset", "blackhole", "lost answers"))
        fault = self._journal.begin("cut", member.who, how)
        for proxy in member.proxies:
            {"reset": proxy.cut, "blackhole": proxy.freeze, "lost answers": proxy.drop_answers}[how]()
        await asyncio.sleep(random.uniform(0.3, 1.5) * self._lease_s)
        member.heal()
        self._journal.end(fault)

    async def _slow(self, member: Member) -> None:
        if not member.proxies:
            await self._lock_wait()
            return
        delay_s = random.uniform(0.02, 0.15) * self._lease_s
        fault = self._journal.begin("slow", member.who, f"each packet {delay_s * 1000:.0f} ms late")
        for proxy in member.proxies:
            proxy.delay(delay_s)
        await asyncio.sleep(random.uniform(0.5, 1.5) * self._lease_s)
        member.heal()
        self._journal.end(fault)

    async def _lock_wait(self) -> None:
        """Let contenders wait for a lock: on SQLite the file's, elsewhere that of a row which a fenced write needs."""
        name = random.choice(LEASES)
        if not self._scratch.servers:
            fault = self._journal.begin("slow", "", "another program holds the file's write lock")
            async with self._scratch.held_up(name):
                await asyncio.sleep(random.uniform(0.3, 0.9) * self._lease_s)
            self._journal.end(fault)
            return
        member = self._contenders.of(self._journal.leader_of(name)[1])
        if member is None or member.lock.locked() or sys.platform == "win32":  # it has to be frozen, too
            await asyncio.sleep(self._lease_s / 10)
            return
        async with member.lock:
            await self._waiting_statement(member, name)

    async def _waiting_statement(self, member: Member, name: str) -> None:
        opened = await self._opened(member, "leader", lease=name, moment="guarded")
        if opened is None:
            return
        number, epoch = opened
        fault = self._journal.begin(
            "slow", member.who, f"its guarded write of {name}, epoch {epoch}, waits for a row lock"
        )
        try:
            async with self._scratch.held_up(name):
                member.order("go", window=number, taken="")
                await asyncio.sleep(self._lease_s / 4)  # the statement is on its way to the lock
                await member.freeze()
                new = await self._journal.until(
                    lambda said: said.kind == "granted" and said["name"] == name and said["epoch"] > epoch,
                    2.5 * self._lease_s,
                )
        except Unavailable:
            self._journal.end(fault, "the database was away")
            raise
        await asyncio.sleep(self._lease_s / 10)
        await self._thaw(member, number, fault, f"{new.who} took over with epoch {new['epoch']}" if new else "")


def heal(contenders: ContenderProcesses) -> None:
    """End all faults: every process runs, every proxy forwards, every clock is right."""
    for member in contenders.members:
        member.heal()
        member.thaw()
        member.order("clock", offset_s=0)
        member.order("calm")


async def inject_faults(plan: Plan, scratch: Scratch, contenders: ContenderProcesses, journal: Journal) -> None:
    """Inject faults until the time is over, several at once if there are enough contenders.

    If the verdict still lacks something by then, go on for up to EXTRA_S more.
    """
    aims = Aims()
    count = max(1, plan.contenders // 2)
    began_s = boottime_s()

    def left_s() -> float:
        lasted_s = boottime_s() - began_s
        if lasted_s < plan.for_s:
            return plan.for_s - lasted_s
        is_over = journal.is_telling(scratch.has_locks) or lasted_s >= plan.for_s + EXTRA_S
        return 0.0 if is_over else EXTRA_STEP_S

    injectors = [FaultInjector(plan, scratch, contenders, journal, aims) for _ in range(count)]
    tasks = [asyncio.create_task(one.run()) for one in injectors]
    try:
        while (step_s := left_s()) > 0:
            done, _ = await asyncio.wait(tasks, timeout=step_s, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            if len(done) == len(tasks):  # no fault was asked for
                await asyncio.sleep(step_s)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        now_s = boottime_s()
        for fault in journal.faults:
            fault.ended_s = fault.ended_s or now_s
