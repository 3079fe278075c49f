"""A whole run: make the run's schema or file, start the contenders, inject faults, end them, judge.

Always cleans up.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Protocol

import fencehold
from fencehold.model.errors import FenceholdError
from fencehold.telemetry.fan_out import UNHEARD
from fencehold.testing.history import boottime_s
from fencehold.verify import faults
from fencehold.verify.contender_processes import ContenderProcesses
from fencehold.verify.hooks import HookRun, passwords, run_hook
from fencehold.verify.journal import Fault, Journal
from fencehold.verify.plan import DRAIN_LIMIT_S, Plan
from fencehold.verify.roles import HELD, PLAIN
from fencehold.verify.scratch.place import Scratch, make_tables, to_the_end
from fencehold.verify.verdict import Verdict, beliefs, findings, gathered, lock_beliefs

FEED_EVERY_S = 0.25
HELD_EVERY = 20  # one event of so many is for the loops that keep claims for too long
STATUS_EVERY_S = 0.5
HOOK_AT = {"pause-hook": 0.25, "failover-hook": 0.55}  # parts of the run's time


class Progress(Protocol):
    """Receives the progress of a run, to show it to the user."""

    def say(self, text: str) -> None: ...

    def fault(self, at_s: float, fault: Fault) -> None: ...

    def status(self, at_s: float, journal: Journal) -> None: ...


def scratch_of(plan: Plan) -> Scratch:
    """Return the scratch place (the run's own schema or file) that fits the database.

    Its driver is imported only then.
    """
    if plan.database == "sqlite":
        from fencehold.verify.scratch.sqlite import SqliteScratch

        return SqliteScratch(plan)
    from fencehold.verify.scratch.postgres import PostgresScratch

    return PostgresScratch(plan)


async def run(plan: Plan, progress: Progress) -> Verdict:
    """Run the plan and return the verdict.

    After an error, too, the contenders are ended and the run's schema or file removed.
    """
    began_s = boottime_s()
    async with _place(plan, progress) as (scratch, left):
        journal = Journal(lambda fault: progress.fault(fault.began_s - began_s, fault), began_s)
        not_tested = _not_tested(plan, scratch)
        for what, reason in not_tested.items():
            progress.say(f"cannot test here: {what}: {reason}")
        hooks = await _performed(plan, scratch, journal, progress)
        progress.say("judging")
        evidence = await gathered(scratch, journal)
        found = findings(evidence, scratch.has_locks)
    verdict = Verdict(
        plan, found, list(beliefs(journal)), list(lock_beliefs(journal)), journal, hooks, not_tested,
        boottime_s() - began_s,
    )  # fmt: skip
    return dataclasses.replace(verdict, left_behind=left[0] if left else None)


def _not_tested(plan: Plan, scratch: Scratch) -> dict[str, str]:
    found = faults.impossible(plan, scratch)
    if not scratch.has_locks:
        found["advisory locks"] = "SQLite has none"
    if not plan.failover_hook and scratch.servers:
        found["failover"] = "verify cannot switch your server over; --failover-hook runs a command of yours that does"
    if not plan.pause_hook and scratch.servers:
        found["server pause"] = "verify cannot stop your server; --pause-hook runs a command of yours that does"
    return found


@asynccontextmanager
async def _place(plan: Plan, progress: Progress) -> AsyncIterator[tuple[Scratch, list[str]]]:
    """Make the run's own schema or file, yield it with a list, and remove it at the end.

    The list then holds a text about what could not be removed; it is empty if nothing is left.
    """
    scratch = scratch_of(plan)
    left: list[str] = []

    async def remove(error: BaseException | None) -> None:
        problem = await to_the_end(scratch.drop())
        if problem is None:
            return
        left.append(problem)
        if isinstance(error, FenceholdError):
            error.hint = f"{error.hint} {problem}".strip()  # an error is all that `-o json` prints of a run that failed
        else:
            progress.say(problem)

    try:
        await scratch.make()
    except asyncio.CancelledError as error:
        await remove(error)
        raise
    try:
        for name in scratch.left:
            progress.say(
                f"another run has made {name}; if it does not run any more (it was killed), remove that by hand"
            )
        await make_tables(scratch)
        yield scratch, left
    except BaseException as error:
        await remove(error)
        raise
    else:
        await remove(None)


async def _performed(plan: Plan, scratch: Scratch, journal: Journal, progress: Progress) -> Sequence[HookRun]:
    contenders = ContenderProcesses(plan, scratch, journal)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(lambda: to_the_end(contenders.close()))
        progress.say(
            f"{plan.contenders} contenders on {plan.label}, leases of {plan.lease_s:g} s, {plan.for_s:g} s of faults"
        )
        await contenders.start()
        store = await stack.enter_async_context(
            fencehold.connect(scratch.url, table=scratch.lease_table, facts=UNHEARD)
        )
        background = [
            asyncio.create_task(_feed(plan, scratch, store, journal)), asyncio.create_task(contenders.tend()),
            asyncio.create_task(_show(journal, progress)),
        ]  # fmt: skip
        stack.push_async_callback(_cancelled, background)
        hooks: Sequence[HookRun] = await _watched(_faults_injected(plan, scratch, contenders, journal), background)
        faults.heal(contenders)
        progress.say("faults are over; waiting for the last events")
        background[0].cancel()
        await _watched(_drained(scratch, journal), background)
        await contenders.close(in_order=True)
        return hooks


async def _watched(work: Coroutine[Any, Any, Any], others: Sequence[asyncio.Task[Any]]) -> Any:
    """Return the result of `work`. If one of the tasks in `others` fails, cancel `work` and raise that task's error."""
    task = asyncio.ensure_future(work)
    pending = {task, *(other for other in others if not other.done())}
    try:
        while not task.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                if not one.cancelled():
                    one.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return task.result()


async def _faults_injected(
    plan: Plan, scratch: Scratch, contenders: ContenderProcesses, journal: Journal
) -> Sequence[HookRun]:
    hooks = [
        asyncio.create_task(_hook_later(name, command, plan, journal))
        for name, command in (("pause-hook", plan.pause_hook), ("failover-hook", plan.failover_hook))
        if command
    ]
    try:
        await faults.inject_faults(plan, scratch, contenders, journal)
        return await asyncio.gather(*hooks)
    finally:
        await _cancelled(hooks)


async def _hook_later(name: str, command: str, plan: Plan, journal: Journal) -> HookRun:
    await asyncio.sleep(plan.for_s * HOOK_AT[name])
    return await run_hook(name, command, plan.hook_limit_s, journal, passwords(plan.url))


async def _feed(plan: Plan, scratch: Scratch, store: fencehold.Store, journal: Journal) -> None:
    """Add events at an even pace. An event whose `add` got no answer is not counted: it may be there or not."""
    outbox = store.outbox(scratch.outbox, max_retries=1000)
    batch = max(1, int(plan.events_max * FEED_EVERY_S / plan.for_s))
    for first in range(1, plan.events_max + 1, batch):
        numbers = range(first, first + batch)
        events = [(PLAIN if number % HELD_EVERY else HELD, {"number": number}) for number in numbers]
        with suppress(FenceholdError):
            journal.events_added += await outbox.add_many(events)
        await asyncio.sleep(FEED_EVERY_S)


async def _drained(scratch: Scratch, journal: Journal) -> None:
    """Wait until every event is finished, for at most DRAIN_LIMIT_S: an event that is slow is not lost."""
    until_s = boottime_s() + DRAIN_LIMIT_S
    while boottime_s() < until_s:
        left = sum(status not in ("COMPLETED", "DEAD_LETTER") for _, status in await scratch.rows("events"))
        if not left:
            return
        await asyncio.sleep(0.3)
    journal.note(f"{left} events were not finished {DRAIN_LIMIT_S:g} s after the last fault (they are there)")


async def _show(journal: Journal, progress: Progress) -> None:
    while True:
        await asyncio.sleep(STATUS_EVERY_S)
        progress.status(boottime_s() - journal.began_s, journal)


async def _cancelled(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
