"""The parts of a contender that lead: by leases and, on PostgreSQL, by the advisory lock with an epoch beside it.

They write through the fence, and contend again after each term. When a term is over and another process holds the
lease, they act as if they did not know: they try to write, to renew and to release with the old key. Then they try to
renew and to release under their own name with the other process's epoch. Each such try is reported, and must be
refused.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import fencehold
from fencehold.model.election.rules import Ask, Lease, Refusal, TermKey
from fencehold.model.errors import FenceholdError
from fencehold.ports.backend import Backend
from fencehold.runtime.election.term import Term
from fencehold.runtime.store import Store
from fencehold.testing.history import boottime_s
from fencehold.verify.messages import Brief, Windows, tell, tell_stale, tell_trust
from fencehold.verify.plan import LEASES, LOCK
from fencehold.verify.roles import found
from fencehold.verify.writer import Writer

TURNS_MAX = 1.5  # in leases: how long a leader stays at most before it hands over
SOLO_LEASE_S = 0.2
LOOK_EVERY_S = 0.02
INTERVALS_PER_TRUST = 5  # a rule of pgleaderlock: so many health intervals without a probe end the session


class Leading:
    def __init__(self, brief: Brief, backend: Backend, writer: Writer, windows: Windows) -> None:
        self._brief, self._backend, self._writer, self._windows = brief, backend, writer, windows
        self._leaders: dict[str, fencehold.Leader] = {}
        self._keys: dict[str, TermKey] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def fact(self, event: str, **fields: Any) -> None:
        """Report a fact of the leaders (acquired, renewed, lost or releasing) to the parent process.

        Called on any thread.
        """
        name = str(fields.get("lease_name", ""))
        if name not in LEASES:
            return
        match event:
            case "leader_acquired":
                tell("acquired", name=name, epoch=fields["lease_epoch"])
            case "leader_renewed":
                if (leader := self._leaders.get(name)) is not None and (term := leader.term) is not None:
                    tell_trust(term)
            case "leader_lost" | "leader_releasing":
                tell("ended", name=name, epoch=fields["lease_epoch"])

    async def run(self, store: Store) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in LEASES:
                tasks.create_task(self._contend(store, name))
            tasks.create_task(self._solo())

    def hear(self, order: dict[str, Any]) -> None:
        self._spawn(self._late(order))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _contend(self, store: Store, name: str) -> None:
        lease_s = self._brief.lease_s
        leader = store.leader(name, lease=lease_s, acquire_every=lease_s / 5, holder_id=self._brief.who)
        self._leaders[name] = leader
        async with leader:
            async for term in leader.terms():
                async with term:
                    tell_trust(term)
                    await self._lead(store, name, term)
                if (key := self._keys.pop(name, None)) is not None:
                    self._spawn(self._outlive(key))

    async def _lead(self, store: Store, name: str, term: Term) -> None:
        row: Lease | None = await _tried(store.leases.read(name))
        if row is None or row.epoch != term.epoch:
            return
        self._keys[name] = row.key(self._brief.lease_s)
        tell("granted", name=name, epoch=term.epoch, store_s=row.acquired_at.timestamp())
        hand_over_s = boottime_s() + random.uniform(0.3, TURNS_MAX) * self._brief.lease_s
        while True:
            await self._write(term, self._keys[name])
            await asyncio.sleep(self._brief.write_every_s)
            if boottime_s() >= hand_over_s:
                hand_over_s += self._brief.lease_s
                await _tried(store.leases.ask_step_down(name, term.epoch))

    async def _write(self, term: Term, key: TermKey) -> None:
        """Write once in a fenced transaction of the public API, as a program would.

        Raises LeaseLost if the term is over.
        """
        outcome = await self._writer.write_in(term.transaction, key)
        term.check()
        if outcome is None:
            await asyncio.sleep(self._brief.write_every_s)

    # --- with the key of a term that is over

    async def _late(self, order: dict[str, Any]) -> None:
        """Stand still at the moment that the order names, then write, whatever has happened meanwhile.

        Report the outcome.
        """
        number, name, moment = order["window"], order["lease"], order["moment"]
        key, leader = self._keys.get(name), self._leaders.get(name)
        if key is None or leader is None or leader.term is None or leader.term.epoch != key.epoch:
            tell("no_window", window=number)
            return
        taken = ""

        async def stand() -> None:
            nonlocal taken
            taken = await self._windows.stand(number, "leader", moment, name=name, epoch=key.epoch)

        match moment:
            case "fenced":
                outcome = await self._writer.write(key, fenced=stand)
            case "written":
                outcome = await self._writer.write(key, written=stand)
            case "guarded":
                await stand()
                outcome = await self._writer.write_guarded(key)
            case _:
                leader.term.check()
                await stand()
                outcome = await self._writer.write(key)
        if taken and outcome is not None:
            tell_stale("WRITE", name, f"epoch {key.epoch}", taken, outcome)
        tell("late", window=number, was_accepted=outcome)

    async def _outlive(self, key: TermKey) -> None:
        row = await found(lambda: self._successor(key), 3 * self._brief.lease_s, self._brief.lease_s / 20)
        if row is None:
            return
        seen = f"epoch {row.epoch} of {row.holder_id} had been granted"
        mine = f"epoch {key.epoch}"
        for write in (self._writer.write, self._writer.write_guarded):
            if (outcome := await write(key)) is not None:
                tell_stale("WRITE", key.name, mine, seen, outcome)
        await self._try_verbs(key, mine, seen)
        if row.holder_id != key.holder_id:
            forged = replace(key, epoch=row.epoch)
            await self._try_verbs(forged, f"epoch {row.epoch}", f"its holder was {row.holder_id}")

    async def _successor(self, key: TermKey) -> Lease | None:
        row = (await self._backend.leases.read([key.name], self._brief.lease_s)).get(key.name)
        return row if row is not None and row.epoch > key.epoch else None

    async def _try_verbs(self, key: TermKey, mine: str, seen: str) -> None:
        leases, limit_s = self._backend.leases, self._brief.lease_s
        for verb, call in (("RENEW", leases.renew), ("RELEASE", leases.release)):
            answers = await _tried(call([key], limit_s))
            if answers and isinstance(answers[0], (Lease, Refusal)):
                tell_stale(verb, key.name, mine, seen, isinstance(answers[0], Lease))

    async def _solo(self) -> None:
        """Use a lease that nobody else wants: try to renew and to release a term that has ended.

        The same tries are made once more with the old key after the next grant of that lease.
        """
        while True:
            old = await self._acquired(SOLO_LEASE_S)
            await asyncio.sleep(2 * SOLO_LEASE_S)
            if old is not None:
                await self._try_verbs(old, f"epoch {old.epoch}", "it had ended")
                new = await self._acquired(self._brief.lease_s)
                if new is not None:
                    await self._try_verbs(old, f"epoch {old.epoch}", f"its own epoch {new.epoch} had been granted")
                    await _tried(self._backend.leases.release([new], self._brief.lease_s))
            await asyncio.sleep(self._brief.lease_s / 2)

    async def _acquired(self, lease_s: float) -> TermKey | None:
        ask = Ask(f"solo-{self._brief.who}", self._brief.who, lease_s, f"{boottime_s()}")
        lease = await _tried(self._backend.leases.acquire(ask, self._brief.lease_s))
        return lease.key(lease_s) if isinstance(lease, Lease) else None


async def _tried(call: Any) -> Any:
    """Await the call and return its answer, or None if it raised an error: the database is cut off now and then."""
    try:
        return await call
    except FenceholdError:
        return None


class Locking:
    def __init__(self, brief: Brief, writer: Writer) -> None:
        from pgleaderlock import LeaderLock

        assert brief.lock_name is not None, "asked for"
        self._brief, self._writer = brief, writer
        self._lock = LeaderLock.for_name(
            brief.url, brief.lock_name, health_interval_s=brief.lease_s / INTERVALS_PER_TRUST,
            fencing_name=LOCK, fencing_table=brief.lease_table,
        )  # fmt: skip
        self._lock.on_error(self._failed)

    async def _failed(self, error: Exception) -> None:
        tell("lock_error", error=f"{type(error).__name__}: {error}")

    async def run(self) -> None:
        await self._lock.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look())
                tasks.create_task(self._write())
        finally:
            with suppress(Exception):
                await self._lock.shutdown(2.0)

    async def _look(self) -> None:
        """Ask `is_leader` again and again; report the first and the last time at which it was seen true.

        If the process is frozen between two questions, the reported time is shorter than the real one, never longer.
        """
        was_leader, seen_s = False, 0.0
        while True:
            at_s = boottime_s()
            is_leader = self._lock.is_leader
            if is_leader != was_leader:
                tell("lock_held" if is_leader else "lock_left", since_s=at_s, seen_s=seen_s)
            if is_leader and int(at_s * 5) != int(seen_s * 5):
                tell("lock_seen", seen_s=at_s)
            was_leader, seen_s = is_leader, at_s if is_leader else seen_s
            await asyncio.sleep(LOOK_EVERY_S)

    async def _write(self) -> None:
        hand_over_s = 0.0
        while True:
            await asyncio.sleep(self._brief.write_every_s * 2)
            term: Any = self._lock.term
            if term is None or not term.is_valid:
                hand_over_s = boottime_s() + random.uniform(0.5, 2.0) * self._brief.lease_s
                continue
            await self._writer.write_in(term.transaction, TermKey(LOCK, self._brief.who, term.epoch, 0.0))
            if boottime_s() >= hand_over_s:
                with suppress(Exception):
                    await self._lock.step_down(self._brief.lease_s)
