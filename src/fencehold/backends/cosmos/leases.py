"""The verbs of named leases on Cosmos DB, written by etag. The rules are in model/election/rules.py.

The server's time is known only as a window, from the earliest to the latest time that it can be (server_clock.py). A
rule is applied only if the table gives the same rule at both ends of the window. A takeover between the decision and
the write changes the etag: the write then fails, and the row is read and decided again. A write that was decided while
the lease was live, and delayed past its expiry, succeeds only if nobody took the lease over. So a row never belongs to
two holders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from fencehold.backends.cosmos.documents import (
    Document,
    document_id,
    lease_document,
    lease_row,
    query,
)
from fencehold.backends.cosmos.server_clock import Window
from fencehold.backends.cosmos.wire import Call, Wire
from fencehold.model.election.rules import (
    Ask,
    Busy,
    Lease,
    Refusal,
    Request,
    Rule,
    TermKey,
    Verb,
    decide,
    keep,
    refusal_reason,
)
from fencehold.model.errors import FenceholdError, Uncertain
from fencehold.ports.leases import Answer

TRIES_MAX = 5  # writes refused by etag before the answer is Busy: each means that another client's write succeeded
LISTED_MAX = 100_000
KNOWN_MAX = 10_000


class CosmosLeases:
    def __init__(self, wire: Wire, table: str) -> None:
        self._wire = wire
        self._partition = f"leases:{table}"
        # The documents as we last wrote them: a renewal writes under the known etag, and is one request.
        self._known: dict[str, Document] = {}

    async def acquire(self, ask: Ask, limit_s: float) -> Answer:
        call = Call(self._wire, "acquire", limit_s)
        return await self._attempt(call, Verb.ACQUIRE, TermKey(ask.name, ask.holder_id, 0, ask.lease_s), ask.nonce)

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        call = Call(self._wire, "renew", limit_s)
        return await batch(keys, lambda key: self._attempt(call, Verb.RENEW, key))

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        call = Call(self._wire, "release", limit_s)
        return await batch(keys, lambda key: self._attempt(call, Verb.RELEASE, key))

    async def read(self, names: Sequence[str], limit_s: float) -> dict[str, Lease]:
        if not names:
            return {}
        call = Call(self._wire, "read", limit_s)
        wanted = dict.fromkeys(names)
        found = await asyncio.gather(*(call.read(self._partition, document_id(name)) for name in wanted))
        window = await call.now(self._partition)
        rows = (lease_row(document) for document in found if document is not None)
        return {row.name: seen(row, window) for row in rows}

    async def list(self, prefix: str, limit_s: float) -> list[Lease]:
        call = Call(self._wire, "list", limit_s)
        found = await call.query(self._partition, query("list_leases"), {"prefix": prefix}, LISTED_MAX)
        window = await call.now(self._partition)
        return sorted((seen(lease_row(document), window) for document in found), key=lambda lease: lease.name)

    async def ask_step_down(self, name: str, epoch: int, limit_s: float) -> Answer:
        call = Call(self._wire, "ask_step_down", limit_s)
        return await self._attempt(call, Verb.ASK_STEP_DOWN, TermKey(name, "", epoch, 0.0))

    async def _attempt(self, call: Call, verb: Verb, key: TermKey, nonce: str = "") -> Answer:
        """Read the row, decide, write by etag, and start again if the etag has changed. Return the verb's answer.

        The row as this client last wrote it is used first, which saves the read. Returns Busy after TRIES_MAX failed
        writes.
        """
        document = self._remembered(verb, key)
        for _ in range(TRIES_MAX):
            is_fresh = document is None
            if document is None:
                document = await call.read(self._partition, document_id(key.name))
            window = await call.now(self._partition)
            row = lease_row(document) if document is not None else None
            rule = judged(row, verb, key, nonce, window)
            if rule is None and not is_fresh:
                document = None  # a refusal must be based on a row just read
                continue
            if rule is None:
                return refused(row, verb, window)
            after = rule.then(row, request_at(window, verb, key, nonce))
            if rule.then is keep or await self._written(call, document, after):
                return replace(after, remaining_s=(after.expires_at - window.latest).total_seconds())
            document = None
        return Busy()

    async def _written(self, call: Call, before: Document | None, after: Lease) -> bool:
        self._known.pop(after.name, None)
        stored = await call.write(self._partition, lease_document(self._partition, after), before)
        if stored is not None and len(self._known) < KNOWN_MAX:
            self._known[after.name] = stored
        return stored is not None

    def _remembered(self, verb: Verb, key: TermKey) -> Document | None:
        """Return the document as this client last wrote it, if it shows the term of `key`; else None.

        Always None for an acquire, which must see what other clients wrote.
        """
        document = self._known.get(key.name) if verb in (Verb.RENEW, Verb.RELEASE) else None
        is_same = document is not None and (document["holderId"], document["epoch"]) == (key.holder_id, key.epoch)
        return document if is_same else None


async def batch(keys: Sequence[TermKey], attempt: Callable[[TermKey], Awaitable[Answer]]) -> list[Answer]:
    """Attempt all keys at once and return an answer for each key, in the order of `keys`.

    If some attempts fail and others do not, the answer of the failed ones is Busy, so that the others are not lost. If
    all fail, raises an Uncertain if there is one among the errors, else the first error.
    """
    distinct = list(dict.fromkeys(keys))
    found = await asyncio.gather(*(attempt(key) for key in distinct), return_exceptions=True)
    outcomes = dict(zip(distinct, found, strict=True))
    errors = [outcome for outcome in found if isinstance(outcome, BaseException)]
    for error in errors:
        if not isinstance(error, FenceholdError):
            raise error
    if errors and len(errors) == len(found):
        raise next((error for error in errors if isinstance(error, Uncertain)), errors[0])
    answers = (outcomes[key] for key in keys)
    return [Busy() if isinstance(answer, BaseException) else answer for answer in answers]


def judged(row: Lease | None, verb: Verb, key: TermKey, nonce: str, window: Window) -> Rule | None:
    """Return the rule that allows this verb, or None if the verb is refused.

    `window` is the time between which two instants the server's clock is now. The rule must be the same at the earliest
    and at the latest instant; if it is not, nobody can tell which one holds, and the verb is refused.
    """
    first, last = (
        decide(row, verb, Request(key.name, now, key.holder_id, key.epoch, key.lease_s, nonce))
        for now in (window.earliest, window.latest)
    )
    return first if first is last else None


def request_at(window: Window, verb: Verb, key: TermKey, nonce: str) -> Request:
    """Return the rules' input for this verb, with the time that the write stores.

    An acquire or a renewal stores a lease from the latest time that the server's clock may show: the holder counts its
    lease from when it asked, which is earlier, so the holder always stops first. A release stores an end two window
    widths before the earliest time, so that the next holder, whose window may be earlier than ours, need not wait.
    """
    now = window.earliest - 2 * window.width if verb is Verb.RELEASE else window.latest
    return Request(key.name, now, key.holder_id, key.epoch, key.lease_s, nonce)


def refused(row: Lease | None, verb: Verb, window: Window) -> Refusal:
    """Return the refusal with its reason and the row as other clients than its holder see it.

    The reason is the one at the end of the window, because there the caller's own lease lapses first.
    """
    reason = "held" if verb is Verb.ACQUIRE else refusal_reason(row, window.latest)
    return Refusal(reason, seen(row, window) if row is not None else None)


def seen(row: Lease, window: Window) -> Lease:
    """Return the lease as other clients than its holder see it: live until it has certainly lapsed."""
    return replace(row, remaining_s=(row.expires_at - window.earliest).total_seconds())
