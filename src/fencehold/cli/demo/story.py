"""The demo's events in order: a kill, a freeze with a late write, a hand-over; each is printed as it happens."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from types import TracebackType
from typing import Self

from fencehold.cli.demo.worker import GO_ON, LEASE, OPEN_WINDOW
from fencehold.cli.run import guardian
from fencehold.model.errors import Unavailable
from fencehold.runtime.store import Store
from fencehold.verify.journal import Journal, Said

NAMES = ("ada", "ben", "cleo")
Tell = Callable[[str, str], None]  # a sentence and its style


class Stage:
    """The three workers and all lines they wrote. Leaving the context ends all workers, whatever the reason."""

    def __init__(self, url: str, lease_s: float) -> None:
        self.journal = Journal()
        self._url = url
        self._lease_s = lease_s
        self._limit_s = 10 + 10 * lease_s
        self._workers: dict[str, Process] = {}
        self._readers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for name in NAMES:
            worker = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "fencehold.cli.demo.worker", self._url, name, str(self._lease_s),
                stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
                start_new_session=True,  # Ctrl-C reaches only the demo, which then ends the workers
            )  # fmt: skip
            self._workers[name] = worker
            self._readers.append(asyncio.create_task(self._listen(name, worker)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            if worker.returncode is None:
                worker.kill()
        await asyncio.gather(*self._readers)
        await asyncio.gather(*(worker.wait() for worker in self._workers.values()))

    async def _listen(self, name: str, worker: Process) -> None:
        assert worker.stdout is not None, "it was started with a pipe"
        async for line in worker.stdout:
            self.journal.hear_line(name, line)

    async def until(self, found: Callable[[Said], bool], what: str) -> Said:
        """Return the first report, already there or still to come, for which `found` returns True.

        Raises Unavailable, with `what` in its text, if no such report comes within the limit.
        """
        said = next(filter(found, self.journal.said), None) or await self.journal.until(found, self._limit_s)
        if said is None:
            raise Unavailable(f"The demo waited {self._limit_s:g} s in vain for {what}.", code="demo_stuck")
        return said

    async def leader_after(self, epoch: int) -> Said:
        return await self.until(lambda said: said.kind == "acquired" and said["epoch"] > epoch, "a leader")

    def newest(self) -> Said:
        return max(self.journal.of_kind("acquired"), key=lambda said: said["epoch"])

    def order(self, name: str, text: str) -> None:
        stdin = self._workers[name].stdin
        assert stdin is not None, "it was started with a pipe"
        stdin.write(text.encode())

    def signal(self, name: str, signum: signal.Signals) -> None:
        self._workers[name].send_signal(signum)

    async def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)
        await self._workers[name].wait()
        self.journal.died_s[name] = guardian.now_s()


class Story:
    """Plays the demo's three parts: a kill, a freeze with a late write, a hand-over.

    They take about ten lease durations.
    """

    def __init__(self, stage: Stage, store: Store, tell: Tell, lease_s: float) -> None:
        self._stage, self._store, self._tell, self._lease_s = stage, store, tell, lease_s

    async def run(self) -> None:
        self._tell(f"three processes want the lease {LEASE!r}, which lasts {self._lease_s:g} s unless renewed", "")
        first = await self._stage.leader_after(0)
        self._tell(f"{first.who} leads with epoch {first['epoch']} and writes; the others wait", "green")
        await asyncio.sleep(2 * self._lease_s)
        await self._death()
        await asyncio.sleep(1.5 * self._lease_s)
        await self._freeze()
        await asyncio.sleep(2 * self._lease_s)
        await self._hand_over()
        await asyncio.sleep(self._lease_s)

    async def _death(self) -> None:
        old = self._stage.newest()
        self._tell(f"kill -9 {old.who}, the leader: it can say goodbye to nobody", "red")
        killed_s = guardian.now_s()
        await self._stage.kill(old.who)
        new = await self._stage.leader_after(old["epoch"])
        self._tell(
            f"{new.who} took over with epoch {new['epoch']}, {new.at_s - killed_s:.2f} s after the kill", "green"
        )

    async def _freeze(self) -> None:
        old = self._stage.newest()
        self._stage.order(old.who, OPEN_WINDOW)
        await self._stage.until(
            lambda said: said.kind == "checked" and (said.who, said["epoch"]) == (old.who, old["epoch"]), "the check"
        )
        self._stage.signal(old.who, signal.SIGSTOP)
        frozen_s = guardian.now_s()
        self._tell(f"{old.who} checked that it leads (yes), is about to write, and is frozen (SIGSTOP) there", "red")
        new = await self._stage.leader_after(old["epoch"])
        seconds = f"{new.at_s - frozen_s:.2f} s after the freeze"
        self._tell(f"the lease ran out: {new.who} took over with epoch {new['epoch']}, {seconds}, and writes", "green")
        await asyncio.sleep(0.75 * self._lease_s)
        self._tell(f"{old.who} is thawed (SIGCONT) and, unaware, sends its write of epoch {old['epoch']}", "red")
        self._stage.order(old.who, GO_ON)
        self._stage.signal(old.who, signal.SIGCONT)
        late = await self._stage.until(lambda said: said.kind == "late_write", "the late write")
        if late["accepted"]:
            self._tell("ACCEPTED: the fence has a hole", "bold red")
        else:
            row = f"the lease's row says epoch {late['epoch_in_row']}, held by {late['holder_in_row']}"
            why = f"the write of epoch {late['epoch']} changed {late['rows']} rows, because {row}"
            self._tell(f"REJECTED by the database: [lease_lost] {why}", "bold yellow")

    async def _hand_over(self) -> None:
        old = self._stage.newest()
        self._tell(f"{old.who} is asked to step down, as `fencehold step-down` would", "")
        asked_s = guardian.now_s()
        await self._store.leases.ask_step_down(LEASE, old["epoch"])
        new = await self._stage.leader_after(old["epoch"])
        seconds = f"{new.at_s - asked_s:.2f} s later"
        self._tell(f"{old.who} gave the lease back; {new.who} leads with epoch {new['epoch']}, {seconds}", "green")
