"""The doctor's checks, one function for each; each returns findings with what to do about them."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence

from fencehold.cli.doctor import store as doctor_store
from fencehold.cli.doctor.store import Finding, failed
from fencehold.cli.outbox.words import ReaperSeen
from fencehold.cli.screen import span
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.model.outbox.settings import OutboxSettings, outbox_flag
from fencehold.ports.checkup import State
from fencehold.ports.events import Stats
from fencehold.runtime.outbox.outbox import Outbox
from fencehold.runtime.store import Store

CLOCKS_AGREE_S = 0.1
CLOCKS_APART_S_MAX = 2.0


class Doctor:
    def __init__(self, settings: OutboxSettings, pending_age_s_max: float, table: str) -> None:
        self._settings = settings
        self._table = table
        self._pending_age_s_max = pending_age_s_max

    async def examine(self, store: Store, outboxes: Sequence[str]) -> list[Finding]:
        """Check everything and return the findings; `outboxes` limits the outboxes that are checked.

        An error of the store becomes a finding, and is not raised.
        """
        must_exist, notes = bool(outboxes), list[Finding]()
        try:
            await store.open()
            if not outboxes:
                outboxes, notes = await doctor_store.outboxes_there(store)
            faults = await store.checkup.faults(outboxes)
            rights = await store.checkup.rights_missing(outboxes)
        except FenceholdError as error:
            await store.close()
            return [failed("database", error)]
        try:
            findings = [Finding("database", State.OK, f"answers: {store!r}".replace("<Store ", "").rstrip(">"))]
            findings += await doctor_store.of_leases(store, faults, rights, self._table)
            findings += await doctor_store.of_settings(store)
            findings += doctor_store.of_items(faults, rights) + notes
            nouns = [store.outbox(name) for name in outboxes]
            for noun in nouns:
                findings += await self._outbox(noun, faults[noun.name], rights[noun.name], must_exist)
            return [*findings, await self._clock(store, nouns, findings)]
        finally:
            await store.close()

    async def _clock(self, store: Store, nouns: Sequence[Outbox], findings: Sequence[Finding]) -> Finding:
        """Compare the store's clock with ours.

        Leases use only the store's clock; ours matters for sent times and for logs.
        """
        try:
            apart_s = await _apart_s(store, nouns, findings)
        except FenceholdError as error:
            return failed("clock", error)
        if apart_s is None:
            return Finding("clock", State.SKIPPED, "not compared: there is neither a lease nor an event yet")
        if abs(apart_s) < CLOCKS_AGREE_S:
            return Finding("clock", State.OK, f"the database's and this machine's agree within {CLOCKS_AGREE_S:g} s")
        words = f"the database's clock is {span(abs(apart_s))} {'ahead of' if apart_s > 0 else 'behind'} this machine's"
        if abs(apart_s) <= CLOCKS_APART_S_MAX:
            return Finding("clock", State.OK, words)
        hint = "Leases do not mind, but times given by programs (not_before) and logs do: set both clocks by NTP."
        return Finding("clock", State.WARNING, words, hint)

    async def _outbox(
        self, outbox: Outbox, fault: ConfigurationError | None, rights: list[str], must_exist: bool
    ) -> list[Finding]:
        name = outbox.name
        findings = doctor_store.of_outbox_tables(name, fault, rights, must_exist)
        if any(finding.state is not State.OK for finding in findings):
            return findings
        try:
            stats = await outbox.stats(whole=False)
        except FenceholdError as error:
            return [failed("tables", error, name)]
        reaper = ReaperSeen.of(stats, self._settings, name)
        return [
            *findings, _reaper(name, reaper), _lapsed(name, stats, reaper), _dead(name, stats),
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
    hint = f"Run `{reaper.command}`, or workers that bring one (their default), before anything else."
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
    flag = outbox_flag(name)
    ls, redrive = f"`fencehold outbox ls{flag} --status DEAD_LETTER`", f"`fencehold outbox redrive{flag}`"
    hint = f"{ls} says why; {redrive} once that is mended."
    return Finding(
        "dead letters", State.WARNING, f"{stats.dead_letter} given up: somebody must look at them", hint, name
    )


async def _apart_s(store: Store, nouns: Sequence[Outbox], findings: Sequence[Finding]) -> float | None:
    """Return how many seconds the store's clock is ahead of ours, computed from any row; None if there is no row."""
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
