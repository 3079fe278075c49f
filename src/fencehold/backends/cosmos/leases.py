"""Named leases on Cosmos DB, written by etag: the table of model/election/rules.py on a window of the server's time.

A rule is applied only if it is the same one at every instant that the server's clock may show. A takeover between the
decision and the write changes the etag: the write is refused, and the row is read and decided again. A write that was
decided while the lease was live, and then delayed past its expiry, is executed only if nobody took the lease over. So
the row never belongs to two holders.
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
        """Read (or use the known document), decide, write by etag; start again if the etag has changed.

        Returns Busy after TRIES_MAX refused writes.
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
        """Return the document as we last wrote it, if it is this term's. An acquire must see what others wrote."""
        document = self._known.get(key.name) if verb in (Verb.RENEW, Verb.RELEASE) else None
        is_same = document is not None and (document["holderId"], document["epoch"]) == (key.holder_id, key.epoch)
        return document if is_same else None


async def batch(keys: Sequence[TermKey], attempt: Callable[[TermKey], Awaitable[Answer]]) -> list[Answer]:
    """Attempt all keys at once. If only some got an answer, the others are Busy, so that no answer is lost.

    If none got one, raises an Uncertain if there is any, else the first error.
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
    """Return the rule that applies whatever the server's clock shows within the window; None if none does: refused."""
    first, last = (
        decide(row, verb, Request(key.name, now, key.holder_id, key.epoch, key.lease_s, nonce))
        for now in (window.earliest, window.latest)
    )
    return first if first is last else None


def request_at(window: Window, verb: Verb, key: TermKey, nonce: str) -> Request:
    """Return the request with its instant.

    A lease starts at the latest time the clock may show, because its holder counts from an earlier one. A released
    lease ends at the earliest, less twice the window's width, so that the next holder, whose window may be lower than
    ours, need not wait.
    """
    now = window.earliest - 2 * window.width if verb is Verb.RELEASE else window.latest
    return Request(key.name, now, key.holder_id, key.epoch, key.lease_s, nonce)


def refused(row: Lease | None, verb: Verb, window: Window) -> Refusal:
    """Return the refusal with the row as others see it.

    Its reason is that at the end of the window, where our lease lapses first.
    """
    reason = "held" if verb is Verb.ACQUIRE else refusal_reason(row, window.latest)
    return Refusal(reason, seen(row, window) if row is not None else None)


def seen(row: Lease, window: Window) -> Lease:
    """Return the lease as everybody but its holder must treat it: live until it has lapsed for certain."""
    return replace(row, remaining_s=(row.expires_at - window.earliest).total_seconds())
