"""The verbs of items on Cosmos DB, written by etag. The rules are in model/items/rules.py.

The server's time is known only as a window, from the earliest to the latest time that it can be (server_clock.py). As
with named leases, a rule is applied only if the table allows the same at both ends of the window. A write fails if
another client has changed the document's etag; the item is then read and decided again.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from fencehold.backends.cosmos.documents import Document, document_id, query
from fencehold.backends.cosmos.items import documents as shape
from fencehold.backends.cosmos.schema import CosmosSchema
from fencehold.backends.cosmos.server_clock import EPOCH_START, Window
from fencehold.backends.cosmos.wire import Call, Wire
from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, Uncertain
from fencehold.model.items.rules import (
    ItemKey,
    Request,
    Rule,
    StoredItem,
    Verb,
    decide,
    extend,
    keep,
    refusal_reason,
)
from fencehold.ports.items import EVER, ItemAnswer, ItemRefusal, ItemRow, NewItem, Stretch

KNOWN_MAX = 1000
SPREAD_MAX = 8
CONTENDED_PAUSE_S_MAX = 0.02
NOT_EXECUTED = (Unavailable, ConfigurationError)  # this request was not; others of its batch may have been

WHENEVER = EPOCH_START  # in requests that have no instant yet

Where = tuple[str, Stretch]  # a state, and the range of times at which it began
K = TypeVar("K")
T = TypeVar("T")


class CosmosItemPort:
    def __init__(self, wire: Wire, kind: str) -> None:
        self._wire = wire
        self._kind = kind
        self._buckets = wire.address.buckets
        # Items we hold, as we last wrote them: a save or a renewal writes under the known etag, and is one request.
        self._known: dict[str, Document] = {}

    async def put(self, item: NewItem, limit_s: float) -> ItemAnswer:
        asked = Request(WHENEVER, item.holder_id, state=item.state, document=item.document_json)
        return there(await self._one(Verb.PUT, item.id, asked, limit_s))

    async def get(self, ids: Sequence[str], limit_s: float) -> dict[str, ItemRow]:
        call = Call(self._wire, "get", limit_s)
        found = await asyncio.gather(*(call.read(self._partition(i), document_id(i)) for i in dict.fromkeys(ids)))
        return {row.id: row for row in await seen_now(call, (one for one in found if one is not None))}

    async def acquire(self, item_id: str, holder_id: str, lease_s: float, limit_s: float) -> ItemAnswer:
        asked = Request(WHENEVER, holder_id, lease_s=lease_s)
        return there(await self._one(Verb.ACQUIRE, item_id, asked, limit_s))

    async def renew(self, keys: Sequence[ItemKey], lease_s: float, limit_s: float) -> dict[ItemKey, dt.datetime]:
        answers = await self._batch(Verb.RENEW, {key: of_key(key, lease_s=lease_s) for key in keys}, limit_s)
        rows = ((key, answer) for key, answer in answers.items() if isinstance(answer, ItemRow))
        return {key: row.expires_at for key, row in rows if row.expires_at is not None}

    async def break_leases(self, keys: Sequence[ItemKey], limit_s: float) -> dict[ItemKey, ItemRefusal]:
        answers = await self._batch(Verb.BREAK, {key: of_key(key) for key in keys}, limit_s)
        return {key: answer for key, answer in answers.items() if isinstance(answer, ItemRefusal)}

    async def save(self, key: ItemKey, state: str | None, document_json: str | None, limit_s: float) -> ItemAnswer:
        asked = of_key(key, state=state, document=document_json)
        return there(await self._one(Verb.SAVE, key.id, asked, limit_s))

    async def delete(self, key: ItemKey, limit_s: float) -> ItemRefusal | None:
        answer = await self._one(Verb.DELETE, key.id, of_key(key), limit_s)
        return answer if isinstance(answer, ItemRefusal) else None

    async def next_for_state(
        self,
        state: str,
        limit: int,
        holder_id: str,
        lease_s: float,
        limit_s: float,
        skip: Sequence[str] = (),
        stretch: Stretch = EVER,
    ) -> list[ItemRow]:
        """Lease up to `limit` free items: one query for each bucket, then one write for each item.

        A write fails if another client has changed the etag. After a failed write it queries again, until the batch is
        full, nothing is free, or the time is over. Returns what it has leased by then; raises only if that is nothing.
        """
        call = Call(self._wire, "next_for_state", limit_s)
        taken: list[ItemRow] = []
        spread = 1
        wish = Request(WHENEVER, holder_id, lease_s=lease_s, state=state)
        try:
            while len(taken) < limit:
                wanted = limit - len(taken)
                free = await self._oldest_free(call, (state, stretch), wanted * spread, skip)
                chosen = one_slice(free, wanted)
                asked = (self._taken(call, one, wish) for one in chosen)
                outcomes = await asyncio.gather(*asked, return_exceptions=True)
                taken += [one for one in outcomes if isinstance(one, ItemRow)]
                raise_first([one for one in outcomes if isinstance(one, BaseException)])
                if None not in outcomes and len(chosen) == len(free):
                    break  # nothing else was free
                spread = min(spread * 2, SPREAD_MAX)
                await contended(call)
        except FenceholdError:
            if not taken:  # else return those granted; leases without an answer lapse by themselves
                raise
        return sorted(taken, key=lambda row: row.state_timestamp)

    async def find(self, state: str | None, limit: int, limit_s: float) -> list[ItemRow]:
        if limit <= 0:
            return []
        call = Call(self._wire, "find", limit_s)
        text = query("find_items" if state is None else "find_items_in_state")
        given = {} if state is None else {"state": state}
        found = await oldest((call.query(part, text, given, limit) for part in self._partitions()), limit)
        return await seen_now(call, found)

    async def kinds(self, limit_s: float) -> list[str]:
        raise ConfigurationError(
            "Cosmos DB keeps each kind of items apart, and does not list them.",
            hint="Name the kind.",
            code="which_kind",
        )

    async def _one(self, verb: Verb, item_id: str, asked: Request, limit_s: float) -> ItemAnswer | None:
        """Run the verb on one item and return the item or the refusal.

        None: it was executed, and there is no item now.
        """
        return await self._attempt(Call(self._wire, verb.value, limit_s), verb, item_id, asked)

    async def _batch(
        self, verb: Verb, asked: Mapping[ItemKey, Request], limit_s: float
    ) -> dict[ItemKey, ItemAnswer | None]:
        """Run the verb on each of these items and return each answer: the item, a refusal, or None if there is no item.

        Raises if one item got no answer; the caller may then repeat the whole batch.
        """
        call = Call(self._wire, verb.value, limit_s)
        return await together({key: self._attempt(call, verb, key.id, one) for key, one in asked.items()})

    async def _attempt(self, call: Call, verb: Verb, item_id: str, asked: Request) -> ItemAnswer | None:
        """Read the document, decide, write by etag, and start again if the etag has changed.

        The document as this client last wrote it is used first, which saves the read. Returns the item or the refusal;
        None if there is no item afterwards.
        """
        partition = self._partition(item_id)
        document = self._remembered(verb, item_id, asked)
        while True:
            is_fresh = document is None
            if document is None:
                document = await call.read(partition, document_id(item_id))
            window = await now(call, partition)
            row = shape.stored_item(document)
            rule = judged(row, verb, asked, window)
            if (rule is None or rule.then is keep) and not is_fresh:
                document = None  # only an item just read can show that it is another's, or nobody's
                continue
            if rule is None:
                return refused(document, verb, asked, window)
            if rule.then is keep:
                return shape.seen(document, window.earliest)
            at, token = self._instant(partition, verb, window), shape.last_token(document) + 1
            after = rule.then(row, replace(asked, now=at, next_token=token))
            document = await self._written(call, item_id, document, rule, after)
            if document is not None:
                return shape.seen(document, window.latest)
            await contended(call)

    async def _written(
        self, call: Call, item_id: str, before: Document | None, rule: Rule, after: StoredItem | None
    ) -> Document | None:
        """Write by etag and return what is stored now. None: nothing was written, because the document has changed."""
        self._known.pop(item_id, None)
        partition = self._partition(item_id)
        changed = shape.item_document(partition, self._kind, item_id, after, before)
        if before is not None and rule.then is extend:
            stored = await call.patch(partition, changed["id"], lease_only(changed), before["_etag"])
        else:
            stored = await call.write(partition, changed, before)
        if stored is not None and stored["lease"]["leasedBy"] is not None:
            self._remember(item_id, stored)
        return stored

    async def _oldest_free(self, call: Call, where: Where, limit: int, skip: Sequence[str]) -> list[Document]:
        return await oldest((self._free(call, part, where, limit, skip) for part in self._partitions()), limit)

    async def _free(self, call: Call, partition: str, where: Where, limit: int, skip: Sequence[str]) -> list[Document]:
        """Return up to `limit` free items of this bucket, the longest in their state first.

        `skip` is applied here, not in the query, because a query's length is limited.
        """
        window = await now(call, partition)
        now_ms = shape.instant_ms(window.earliest)
        skipped = {item_id for item_id in skip if self._partition(item_id) == partition}
        since_ms, before_ms = shape.stretch_ms(where[1])
        given = {"state": where[0], "now": now_ms, "since": since_ms, "before": before_ms}
        asked = limit + len(skipped)
        found = await call.query(partition, query("next_for_state"), given, asked)
        return [one for one in found if one["itemId"] not in skipped][:limit]

    async def _taken(self, call: Call, document: Document, asked: Request) -> ItemRow | None:
        """Lease the item of this document and return it. None if it is not free, or another client was quicker."""
        window = await now(call, document["pk"])
        row = shape.stored_item(document)
        rule = judged(row, Verb.NEXT, asked, window)
        if rule is None:
            return None
        after = rule.then(row, replace(asked, now=window.latest, next_token=shape.last_token(document) + 1))
        return shape.seen(await self._written(call, document["itemId"], document, rule, after), window.latest)

    def _instant(self, partition: str, verb: Verb, window: Window) -> dt.datetime:
        """Return the time that the verb writes. For a lease it is the latest time that the server's clock may show.

        A put or a save writes a time that keeps the changes of one client in their order.
        """
        is_transition = verb in (Verb.PUT, Verb.SAVE)
        return self._wire.clock.stamp(partition, window) if is_transition else window.latest

    def _remembered(self, verb: Verb, item_id: str, asked: Request) -> Document | None:
        """Return the document as this client last wrote it, if it still has the lease that `asked` names.

        None if it has another lease or is not known, and always for a put or an acquire.
        """
        document = self._known.get(item_id) if verb not in (Verb.PUT, Verb.ACQUIRE) else None
        lease = document["lease"] if document is not None else {}
        is_same = lease.get("leasedBy") == asked.holder_id and asked.token in (0, lease["token"])
        return document if is_same else None

    def _remember(self, item_id: str, document: Document) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[item_id] = document

    def _partition(self, item_id: str) -> str:
        return shape.item_partition(self._kind, shape.bucket_of(item_id, self._buckets))

    def _partitions(self) -> list[str]:
        return [shape.item_partition(self._kind, bucket) for bucket in range(self._buckets)]


class CosmosItems:
    """The items of one kind for one event loop, with a client of their own, which is opened when first needed."""

    def __init__(self, wire: Wire, kind: str) -> None:
        self._wire = wire
        self.schema = CosmosSchema(wire)
        self.port = self.leases = self.admin = CosmosItemPort(wire, kind)

    async def close(self) -> None:
        await self._wire.close()


def judged(row: StoredItem | None, verb: Verb, asked: Request, window: Window) -> Rule | None:
    """Return the rule to apply, or None if the verb is refused.

    A rule is returned only if a rule applies at both ends of the window and both have the same effect. For a break the
    effects may differ: if the lease may just have lapsed, the break frees the item, which costs nobody a right.
    """
    first, last = (decide(row, verb, replace(asked, now=now)) for now in (window.earliest, window.latest))
    if first is None or last is None:
        return None
    return first if first.then is last.then or verb is Verb.BREAK else None


def refused(document: Document | None, verb: Verb, asked: Request, window: Window) -> ItemRefusal:
    """Return the refusal: the reason at that end of the window at which the verb is refused, and the present item.

    If both ends refuse, the reason is that of the earlier one. The item is as other clients than its holder see it: its
    lease counts as live until it has certainly lapsed.
    """
    row = shape.stored_item(document)
    refuses_first = decide(row, verb, replace(asked, now=window.earliest)) is None
    reason = refusal_reason(row, window.earliest if refuses_first else window.latest)
    return ItemRefusal(reason, shape.seen(document, window.earliest))


async def now(call: Call, partition: str) -> Window:
    return shape.to_the_millisecond(await call.now(partition))


async def seen_now(call: Call, documents: Iterable[Document]) -> list[ItemRow]:
    """Return the items of these documents without the deleted ones, as other clients than their holders see them.

    A lease counts as live until it has certainly lapsed.
    """
    there = [one for one in documents if shape.stored_item(one) is not None]
    rows = [shape.seen(one, (await now(call, one["pk"])).earliest) for one in there]
    return [row for row in rows if row is not None]


async def oldest(parts: Iterable[Awaitable[list[Document]]], limit: int) -> list[Document]:
    found = await asyncio.gather(*parts)
    return sorted((one for part in found for one in part), key=lambda one: int(one["stateTimestamp"]))[:limit]


def of_key(key: ItemKey, *, lease_s: float = 0.0, state: str | None = None, document: str | None = None) -> Request:
    return Request(WHENEVER, key.holder_id, key.token, lease_s=lease_s, state=state, document=document)


def there(answer: ItemAnswer | None) -> ItemAnswer:
    assert answer is not None, "what is asked for leaves an item, or is refused"
    return answer


def one_slice(oldest: Sequence[Document], limit: int) -> Sequence[Document]:
    """Return up to `limit` of the documents: if there are more, those from a random multiple of `limit` on.

    Other clients are trying to take the first ones at the same moment.
    """
    first = random.randrange(0, max(len(oldest), 1), limit)
    return oldest[first : first + limit]


def lease_only(changed: Document) -> list[Document]:
    fields = ("leaseDuration", "expiresAt")
    return [{"op": "set", "path": f"/lease/{name}", "value": changed["lease"][name]} for name in fields]


async def contended(call: Call) -> None:
    """Wait for a short random time, after another client's write made ours fail.

    Raises Unavailable (busy) if no time is left to try again.
    """
    pause_s = random.uniform(0, CONTENDED_PAUSE_S_MAX)
    if pause_s >= call.left_s():
        raise Unavailable("Others kept changing the item for as long as this might take.", code="busy")
    await asyncio.sleep(pause_s)


async def together(asked: Mapping[K, Awaitable[T]]) -> dict[K, T]:
    """Await all at once and return the result of each key. If one fails, raises an error for the whole batch.

    The error is Uncertain (half_done) if some were executed and the others certainly not. The caller may repeat the
    batch: that gives the same result.
    """
    outcomes = await asyncio.gather(*asked.values(), return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if len(errors) < len(outcomes) and errors and all(isinstance(error, NOT_EXECUTED) for error in errors):
        raise half_done(errors[0])
    raise_first(errors)
    pairs = zip(asked, outcomes, strict=True)
    return {key: outcome for key, outcome in pairs if not isinstance(outcome, BaseException)}


def half_done(error: BaseException) -> Uncertain:
    return Uncertain(f"A part of the batch was executed, the rest not: {error}", code="half_done")


def raise_first(errors: Sequence[BaseException]) -> None:
    """Raise one of the errors; do nothing if there are none.

    An error that is neither Uncertain nor Unavailable (a wrong setting, say) is raised first, then an Uncertain, then
    an Unavailable.
    """
    for error in sorted(errors, key=lambda e: (isinstance(e, Unavailable | Uncertain), isinstance(e, Unavailable))):
        raise error
