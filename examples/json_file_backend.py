"""A backend in one file: leases, and nothing else, in one JSON file. docs/adding-a-backend.md explains it.

    python examples/json_file_backend.py leases.json    # in two terminals: one leads; stop it, and the other does

The store is the file, its clock is the clock of the machine. Whoever writes holds the lock of `<file>.lock`, and puts
a whole new file in the place of the old one: readers need no lock, and a crash leaves the old file or the new one.
For processes of one machine on a local disk (a network file system may not honour the lock), and for a few leases: each
write rewrites all. It runs on the event loop, which a disk that hangs would hold up; the SQLite backend has a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import fcntl
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from fencehold.backends.absent import NoCheckup, NoFences, NoHints, NoTables
from fencehold.model.election.rules import Ask, Lease, Refusal, Request, TermKey, Verb, decide, keep, refusal_reason
from fencehold.model.errors import ConfigurationError, Unavailable, Uncertain
from fencehold.ports.leases import Answer
from fencehold.ports.schema import Waits, unheard
from fencehold.runtime.core.clock import BootClock
from fencehold.runtime.election.term import Term
from fencehold.runtime.store import Store
from fencehold.telemetry.logs import LogSink
from fencehold.telemetry.traces import traces

STORE = "A JSON file"
POLL_S = 0.002
TIMES = ("acquired_at", "renewed_at", "expires_at")
KEPT = ("name", "holder_id", "epoch", *TIMES, "step_down_requested", "nonce")

Now = Callable[[], dt.datetime]
Rows = dict[str, Lease]


def machine_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _fields(row: Lease) -> dict[str, Any]:
    return {key: getattr(row, key).isoformat() if key in TIMES else getattr(row, key) for key in KEPT}


def _row(fields: dict[str, Any]) -> Lease:
    times = {key: dt.datetime.fromisoformat(fields[key]) for key in TIMES}
    return Lease(**{**{key: fields[key] for key in KEPT}, **times}, remaining_s=0.0)


def _try_lock(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another has it; or, for ever, this file system has no locks: then it stays "busy"
        return False
    return True


def _sync(folder: str) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class LeaseFile:
    """Reads and replaces the file, and sorts the errors of the disk: executed, not executed, or unknown."""

    def __init__(self, path: str) -> None:
        self.path = path

    @contextlib.asynccontextmanager
    async def locked(self, limit_s: float) -> AsyncIterator[None]:
        """Hold the lock, which the system frees if this process dies. Raises Unavailable (busy) after the limit.

        The lock is of an open file (flock): so clients of one process keep each other out too.
        """
        ends_s = time.monotonic() + limit_s
        with self._sorted():  # not around the block below, whose errors are not the disk's
            lock = open(f"{self.path}.lock", "a", encoding="utf-8")  # noqa: SIM115 - closed below, which unlocks it
        with lock:
            while not _try_lock(lock.fileno()):
                if time.monotonic() >= ends_s:
                    raise Unavailable(f"{self.path} stayed locked; nothing was changed.", code="busy")
                await asyncio.sleep(POLL_S)
            yield

    def read(self) -> Rows:
        with self._sorted(), open(self.path, encoding="utf-8") as file:
            return {name: _row(fields) for name, fields in json.load(file).items()}

    def write(self, rows: Rows) -> None:
        """Replace the file. Until the replacement nothing has changed; after it the change is there, and is synced."""
        fresh, folder = f"{self.path}.new", os.path.dirname(os.path.abspath(self.path))
        with self._sorted():
            with open(fresh, "w", encoding="utf-8") as file:
                json.dump({name: _fields(row) for name, row in rows.items()}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self.path)
        try:
            _sync(folder)
        except OSError as error:
            raise Uncertain(f"{folder}: {error.strerror}; is it on the disk?", code="no_answer") from None

    def missing(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.path} does not exist.", hint="Make it with `await store.init()`, in a folder that exists.",
            code="schema_missing",
        )  # fmt: skip

    @contextlib.contextmanager
    def _sorted(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise self.missing() from None  # never made by a verb: the epochs would begin at 1 again
        except PermissionError as error:
            raise ConfigurationError(f"{self.path}: {error.strerror}.", code="no_permission") from None
        except OSError as error:
            raise Unavailable(f"{self.path}: {error.strerror}; nothing was changed.", code="store_error") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise ConfigurationError(f"{self.path} is no file of leases.", code="bad_url") from None


class FileLeases:
    """The six verbs. Each decides by the rule table, under the lock, with the clock read after the lock was got."""

    def __init__(self, file: LeaseFile, now: Now) -> None:
        self._file = file
        self._now = now

    async def acquire(self, ask: Ask, limit_s: float) -> Answer:
        key = TermKey(ask.name, ask.holder_id, 0, ask.lease_s)
        [answer] = await self._apply(Verb.ACQUIRE, [key], limit_s, ask.nonce)
        return answer

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        return await self._apply(Verb.RENEW, keys, limit_s)

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        return await self._apply(Verb.RELEASE, keys, limit_s)

    async def ask_step_down(self, name: str, epoch: int, limit_s: float) -> Answer:
        [answer] = await self._apply(Verb.ASK_STEP_DOWN, [TermKey(name, "", epoch, 0.0)], limit_s)
        return answer

    async def read(self, names: Sequence[str], limit_s: float) -> dict[str, Lease]:
        rows = self._file.read()
        return {name: self._view(rows[name], self._now()) for name in names if name in rows}

    async def _apply(self, verb: Verb, keys: Sequence[TermKey], limit_s: float, nonce: str = "") -> list[Answer]:
        """All keys under one lock and in one write. Nothing is awaited under the lock: no cancel comes in between."""
        async with self._file.locked(limit_s):
            now, rows, answers, changed = self._now(), self._file.read(), list[Answer](), False
            for key in keys:
                row = rows.get(key.name)
                request = Request(key.name, now, key.holder_id, key.epoch, key.lease_s, nonce)
                rule = decide(row, verb, request)
                if rule is None:
                    reason = "held" if verb is Verb.ACQUIRE else refusal_reason(row, now)
                    answers.append(Refusal(reason, row and self._view(row, now)))
                    continue
                changed |= rule.then is not keep
                rows[key.name] = rule.then(row, request)
                answers.append(self._view(rows[key.name], now))
            if changed:
                self._file.write(rows)
        return answers

    async def list(self, prefix: str, limit_s: float) -> list[Lease]:
        found = sorted((name, row) for name, row in self._file.read().items() if name.startswith(prefix))
        return [self._view(row, self._now()) for _, row in found]

    @staticmethod
    def _view(row: Lease, now: dt.datetime) -> Lease:
        return replace(row, remaining_s=(row.expires_at - now).total_seconds())


class FileMade(NoTables):
    """The file takes the place of the tables: `init` makes it, nothing else does."""

    def __init__(self, file: LeaseFile) -> None:
        super().__init__(STORE)
        self._file = file

    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        async with self._file.locked(limit_s):
            missing = await self.missing(limit_s)
            if missing:
                self._file.write({})
            return missing

    async def missing(self, limit_s: float) -> list[str]:
        return [] if os.path.exists(self._file.path) else [self._file.path]

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        return self._file.missing() if await self.missing(limit_s) else None


class JsonFileBackend:
    """The parts, put together: two of its own, and a line for each that it lacks."""

    name = "JSON files"
    events = items = None

    def __init__(self, path: str, now: Now = machine_now) -> None:
        file = LeaseFile(path)
        self.leases = FileLeases(file, now)
        self.schema = FileMade(file)
        self.fences = NoFences(STORE)
        self.wakeup = NoHints()
        self.checkup = NoCheckup("a JSON file has no transaction to undo one")

    async def open(self, limit_s: float) -> None:
        return None

    async def close(self) -> None:
        return None


def store(path: str) -> Store:
    """What `fencehold.connect` gives for a URL."""
    return Store(lambda: JsonFileBackend(path), BootClock(), LogSink(), traces(), label=path)


async def report(term: Term) -> None:
    print(f"{os.getpid()} leads, epoch {term.epoch}", flush=True)
    await asyncio.Event().wait()


async def main(path: str) -> None:
    async with store(path) as opened:
        await opened.init()
        await opened.run_as_leader("nightly", report, lease="5s")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1]))
