"""What the doctor looks at, one method per question; each answers with what was found and what to do about it."""

from __future__ import annotations

import datetime as dt
import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fencehold.cli.event_words import ReaperSeen
from fencehold.cli.screen import span, without_secrets
from fencehold.cli.service import must_have_leases
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.model.outbox_settings import OutboxSettings
from fencehold.ports.events import Filter, Stats
from fencehold.runtime.outbox import Outbox
from fencehold.runtime.store import Store

CLOCKS_AGREE_S = 0.1
CLOCKS_APART_S_MAX = 2.0
NO_FILE = "does not exist or cannot be opened"
NO_EVENT = "00000000-0000-0000-0000-000000000000"  # asks for the table and its columns, and finds nothing


class State(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    check: str
    state: State
    detail: str
    hint: str = ""
    outbox: str | None = None


class Doctor:
    def __init__(self, settings: OutboxSettings, pending_age_s_max: float) -> None:
        self._settings = settings
        self._pending_age_s_max = pending_age_s_max

    async def examine(self, store: Store, outboxes: Sequence[str], *, must_exist: bool) -> list[Finding]:
        """Whatever goes wrong is a finding: it is what was asked for."""
        nouns = [store.outbox(name) for name in outboxes]
        try:
            await store.open()
        except FenceholdError as error:
            return [_failed("database", error)]
        try:
            findings = await self._leases(store)
            if findings[0].state is not State.OK:
                return findings
            for noun in nouns:
                findings += await self._outbox(noun, must_exist)
            return [*findings, await self._clock(store, nouns, findings)]
        finally:
            await store.close()

    async def _leases(self, store: Store) -> list[Finding]:
        """A SQLite file is opened by the first question only, so both are answered by it."""
        reachable = Finding("database", State.OK, f"answers: {store!r}".replace("<Store ", "").rstrip(">"))
        try:
            await must_have_leases(store)
        except FenceholdError as error:
            answered = isinstance(error, ConfigurationError) and NO_FILE not in error.message
            return [reachable, _failed("lease table", error)] if answered else [_failed("database", error)]
        return [reachable, Finding("lease table", State.OK, "present, with all its columns")]

    async def _clock(self, store: Store, nouns: Sequence[Outbox], findings: Sequence[Finding]) -> Finding:
        """Leases are decided by the store's clock alone; ours matters for times we give and for reading logs."""
        try:
            apart_s = await _apart_s(store, nouns, findings)
        except FenceholdError as error:
            return _failed("clock", error)
        if apart_s is None:
            return Finding("clock", State.SKIPPED, "not compared: there is neither a lease nor an event yet")
        if abs(apart_s) < CLOCKS_AGREE_S:
            return Finding("clock", State.OK, f"the database's and this machine's agree within {CLOCKS_AGREE_S:g} s")
        words = f"the database's clock is {span(abs(apart_s))} {'ahead of' if apart_s > 0 else 'behind'} this machine's"
        if abs(apart_s) <= CLOCKS_APART_S_MAX:
            return Finding("clock", State.OK, words)
        hint = "Leases do not mind, but times given by programs (not_before) and logs do: set both clocks by NTP."
        return Finding("clock", State.WARNING, words, hint)

    async def _outbox(self, outbox: Outbox, must_exist: bool) -> list[Finding]:
        name = outbox.name
        try:
            await outbox.find(Filter(tracking_ids=(NO_EVENT,)), 1)
        except ConfigurationError as error:
            if error.code in ("schema_missing", "no_outbox") and not must_exist:
                return [Finding("tables", State.SKIPPED, "there is no outbox of this name", outbox=name)]
            return [_failed("tables", error, name)]
        except FenceholdError as error:
            return [_failed("tables", error, name)]
        try:
            stats = await outbox.stats(whole=False)
        except FenceholdError as error:
            return [_failed("tables", error, name)]
        reaper = ReaperSeen.of(stats, self._settings)
        present = Finding("tables", State.OK, "present, with all their columns", outbox=name)
        return [
            present, _reaper(name, reaper), _lapsed(name, stats, reaper), _dead(name, stats),
            self._pending(name, stats),
        ]  # fmt: skip

    def _pending(self, name: str, stats: Stats) -> Finding:
        age_s = stats.oldest_pending_age_s
        words = f"{stats.pending} pending, {stats.failed} to be retried; the oldest that is due waits {span(age_s)}"
        if age_s <= self._pending_age_s_max:
            return Finding("oldest pending", State.OK, words, outbox=name)
        hint = f"More than {span(self._pending_age_s_max)}: is a worker running that handles its type, and fast enough?"
        return Finding("oldest pending", State.WARNING, words, hint, name)


def _reaper(name: str, reaper: ReaperSeen) -> Finding:
    ran = "has never run" if reaper.ran_s_ago is None else f"last ran {span(reaper.ran_s_ago)} ago"
    if not reaper.missing:
        return Finding("reaper", State.OK, f"the reaper {ran}", outbox=name)
    hint = "Run `fencehold reaper`, or workers that bring one (their default), before anything else."
    detail = f"NO REAPER: it {ran}; events of a worker that dies are stuck for ever"
    return Finding("reaper", State.ERROR, detail, hint, name)


def _lapsed(name: str, stats: Stats, reaper: ReaperSeen) -> Finding:
    if not stats.lapsed:
        return Finding("lapsed events", State.OK, f"none of {stats.processing} in hand", outbox=name)
    words = f"{stats.lapsed} of {stats.processing} in hand: their worker died, hung or was cut off"
    if reaper.missing:
        return Finding("lapsed events", State.ERROR, words, "Nobody recovers them: see the reaper.", name)
    return Finding("lapsed events", State.WARNING, words, "The reaper recovers them at its next run.", name)


def _dead(name: str, stats: Stats) -> Finding:
    if not stats.dead_letter:
        return Finding("dead letters", State.OK, "none", outbox=name)
    hint = "`fencehold outbox ls --status DEAD_LETTER` says why; `fencehold outbox redrive` once that is mended."
    return Finding("dead letters", State.WARNING, f"{stats.dead_letter} given up, waiting for somebody", hint, name)


def _failed(check: str, error: FenceholdError, outbox: str | None = None) -> Finding:
    return Finding(check, State.ERROR, without_secrets(error.message.rstrip(".")), without_secrets(error.hint), outbox)


async def _apart_s(store: Store, nouns: Sequence[Outbox], findings: Sequence[Finding]) -> float | None:
    """How far the store's clock is ahead of ours, as seen on any row; None without one."""
    broken = {(finding.check, finding.outbox) for finding in findings if finding.state is not State.OK}
    if ("lease table", None) not in broken:
        asked_s = time.time()
        if leases := await store.leases.list():
            store_now = leases[0].expires_at - dt.timedelta(seconds=leases[0].remaining_s)
            return store_now.timestamp() - (asked_s + time.time()) / 2
    for noun in nouns:
        if ("tables", noun.name) not in broken:
            asked_s = time.time()
            if rows := await noun.find(None, 1):
                store_now = rows[0].due_at - dt.timedelta(seconds=rows[0].waits_s)
                return store_now.timestamp() - (asked_s + time.time()) / 2
    return None
