"""Items on Cosmos DB, written by etag: the table of model/items/items.py, over a window of the server's clock.

As with named leases, a rule is applied only if the table allows the same at both ends of the window. A write under an
etag that has changed is refused; the item is then read and decided again.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections.abc import Awaitable, Callable, Sequence

from fencehold.backends.cosmos.documents import Document, document_id, query
from fencehold.backends.cosmos.items import documents as shape
from fencehold.backends.cosmos.schema import CosmosSchema
from fencehold.backends.cosmos.server_clock import Window
from fencehold.backends.cosmos.wire import Call, Wire
from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, Uncertain
from fencehold.model.items.items import (
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

Where = tuple[str, Stretch]  # a state, and the range of times at which it began
Made = Callable[[dt.datetime, int], Request]  # from the instant and the next token


class CosmosItemPort:
    def __init__(self, wire: Wire, kind: str) -> None:
        self._wire = wire
        self._kind = kind
        self._buckets = wire.address.buckets
        # Items we hold, as we last wrote them: a save or a renewal writes under the known etag, and is one request.
        self._known: dict[str, Document] = {}

    async def put(self, item: NewItem, limit_s: float) -> ItemAnswer:
        def made(now: dt.datetime, token: int) -> Request:
            return Request(now, item.holder_id, state=item.state, document=item.document_json)

        answer = await self._attempt(self._wire.call("put", limit_s), Verb.PUT, item.id, made)
        assert answer is not None, "a put leaves an item"
        return answer

    async def get(self, ids: Sequence[str], limit_s: float) -> dict[str, ItemRow]:
        call = self._wire.call("get", limit_s)
        wanted = list(dict.fromkeys(ids))
        found = await asyncio.gather(*(call.read(self._partition(i), document_id(i)) for i in wanted))
        rows = ((i, shape.stored_item(document)) for i, document in zip(wanted, found, strict=True))
        return {i: shape.item_row(i, row, (await now(call, self._partition(i))).earliest) for i, row in rows if row}

    async def acquire(self, item_id: str, holder_id: str, lease_s: float, limit_s: float) -> ItemAnswer:
        def made(now: dt.datetime, token: int) -> Request:
            return Request(now, holder_id, next_token=token, lease_s=lease_s)

        answer = await self._attempt(self._wire.call("acquire", limit_s), Verb.ACQUIRE, item_id, made)
        assert answer is not None, "an acquire leaves an item"
        return answer

    async def renew(self, keys: Sequence[ItemKey], lease_s: float, limit_s: float) -> dict[ItemKey, dt.datetime]:
        call = self._wire.call("renew", limit_s)

        async def one(key: ItemKey) -> ItemAnswer | None:
            return await self._attempt(call, Verb.RENEW, key.id, of_key(key, lease_s=lease_s), key)

        answers = await all_answered(one, keys)
        rows = ((key, answer) for key, answer in answers.items() if isinstance(answer, ItemRow))
        return {key: row.expires_at for key, row in rows if row.expires_at is not None}

    async def break_leases(self, keys: Sequence[ItemKey], limit_s: float) -> dict[ItemKey, ItemRefusal]:
        call = self._wire.call("break", limit_s)

        async def one(key: ItemKey) -> ItemAnswer | None:
            return await self._attempt(call, Verb.BREAK, key.id, of_key(key), key)

        answers = await all_answered(one, keys)
        return {key: answer for key, answer in answers.items() if isinstance(answer, ItemRefusal)}

    async def save(self, key: ItemKey, state: str | None, document_json: str | None, limit_s: float) -> ItemAnswer:
        call = self._wire.call("save", limit_s)
        made = of_key(key, state=state, document=document_json)
        answer = await self._attempt(call, Verb.SAVE, key.id, made, key)
        assert answer is not None, "a save leaves an item"
        return answer

    async def delete(self, key: ItemKey, limit_s: float) -> ItemRefusal | None:
        call = self._wire.call("delete", limit_s)
        answer = await self._attempt(call, Verb.DELETE, key.id, of_key(key), key)
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
        """Run one query for each bucket, then one write for each item. A write fails if another client has changed the
        etag.

        After a failed write it queries again until the batch is full, nothing is free, or the time is over.
        """
        call = self._wire.call("next_for_state", limit_s)
        taken: list[ItemRow] = []
        spread = 1

        def made(now: dt.datetime, token: int) -> Request:
            return Request(now, holder_id, next_token=token, lease_s=lease_s, state=state)

        try:
            while len(taken) < limit:
                wanted = limit - len(taken)
                free = await self._oldest_free(call, (state, stretch), wanted * spread, skip)
                chosen = one_slice(free, wanted)
                asked = (self._taken(call, one, made) for one in chosen)
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
        call = self._wire.call("find", limit_s)
        text = query("find_items" if state is None else "find_items_in_state")
        given = {} if state is None else {"state": state}
        found = await asyncio.gather(*(call.query(part, text, given, limit) for part in self._partitions()))
        oldest = sorted((one for part in found for one in part), key=lambda one: int(one["stateTimestamp"]))[:limit]
        return [view(one, await now(call, one["pk"])) for one in oldest]

    async def kinds(self, limit_s: float) -> list[str]:
        raise ConfigurationError(
            "Cosmos DB keeps each kind of items apart, and does not list them.",
            hint="Name the kind.",
            code="which_kind",
        )

    # One item

    async def _attempt(
        self, call: Call, verb: Verb, item_id: str, made: Made, key: ItemKey | None = None
    ) -> ItemAnswer | None:
        """Read (or use the known document), decide, write by etag; start again if the etag has changed.

        Returns None if the verb is done and the item does not exist.
        """
        partition = self._partition(item_id)
        document = self._remembered(key)
        while True:
            is_fresh = document is None
            if document is None:
                document = await call.read(partition, document_id(item_id))
            window = await now(call, partition)
            row, token = shape.stored_item(document), shape.last_token(document) + 1
            rule = judged(row, verb, made, window)
            if (rule is None or rule.then is keep) and not is_fresh:
                document = None  # only an item just read can show that it is another's, or nobody's
                continue
            if rule is None:
                return refused(item_id, row, verb, made, window)
            after = rule.then(row, made(self._instant(partition, verb, window), token))
            if rule.then is keep:
                return shape.item_row(item_id, after, window.earliest) if after is not None else None
            stored = await self._written(call, item_id, document, rule, after)
            if stored is not None:
                kept = shape.stored_item(stored)
                return shape.item_row(item_id, kept, window.latest) if kept is not None else None
            document = None
            await contended(call)

    async def _written(
        self, call: Call, item_id: str, before: Document | None, rule: Rule, after: StoredItem | None
    ) -> Document | None:
        """Write by etag and return what is stored now; None if the document has changed since it was read."""
        self._known.pop(item_id, None)
        partition = self._partition(item_id)
        if after is None:
            changed = shape.tombstone(partition, self._kind, item_id, shape.last_token(before))
        else:
            changed = shape.item_document(partition, self._kind, item_id, after, before)
        if before is None:
            stored = await call.create(partition, changed)
        elif rule.then is extend:
            stored = await call.patch(partition, changed["id"], lease_only(changed), before["_etag"])
        else:
            stored = await call.replace(partition, changed, before["_etag"])
        if stored is not None and stored["lease"]["leasedBy"] is not None:
            self._remember(item_id, stored)
        return stored

    async def _oldest_free(self, call: Call, where: Where, limit: int, skip: Sequence[str]) -> list[Document]:
        found = await asyncio.gather(*(self._free(call, part, where, limit, skip) for part in self._partitions()))
        return sorted((one for part in found for one in part), key=lambda one: int(one["stateTimestamp"]))[:limit]

    async def _free(self, call: Call, partition: str, where: Where, limit: int, skip: Sequence[str]) -> list[Document]:
        """Return free items, oldest first. `skip` is applied here, not in the query, whose length is limited."""
        window = await now(call, partition)
        now_ms = shape.instant_ms(window.earliest)
        skipped = {item_id for item_id in skip if self._partition(item_id) == partition}
        since_ms, before_ms = shape.stretch_ms(where[1])
        given = {"state": where[0], "now": now_ms, "since": since_ms, "before": before_ms}
        asked = limit + len(skipped)
        found = await call.query(partition, query("next_for_state"), given, asked)
        return [one for one in found if one["itemId"] not in skipped][:limit]

    async def _taken(self, call: Call, document: Document, made: Made) -> ItemRow | None:
        """Acquire the item of this document; None if it is not free, or another client was quicker."""
        window = await now(call, document["pk"])
        row = shape.stored_item(document)
        rule = judged(row, Verb.NEXT, made, window)
        if rule is None:
            return None
        after = rule.then(row, made(window.latest, shape.last_token(document) + 1))
        stored = await self._written(call, document["itemId"], document, rule, after)
        kept = shape.stored_item(stored)
        return shape.item_row(document["itemId"], kept, window.latest) if kept is not None else None

    def _instant(self, partition: str, verb: Verb, window: Window) -> dt.datetime:
        """Return the verb's instant. A lease counts from the latest time it may be.

        A change of state gets a time that keeps the changes of one client in their order.
        """
        is_transition = verb in (Verb.PUT, Verb.SAVE)
        return self._wire.clock.stamp(partition, window) if is_transition else window.latest

    def _remembered(self, key: ItemKey | None) -> Document | None:
        document = self._known.get(key.id) if key is not None else None
        if document is None or key is None:
            return None
        lease = document["lease"]
        is_same = lease["leasedBy"] == key.holder_id and key.token in (0, lease["token"])
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
    """The items of one kind, with a client of their own that opens when first needed; for one event loop."""

    def __init__(self, wire: Wire, kind: str) -> None:
        self._wire = wire
        self.schema = CosmosSchema(wire)
        self.port = self.leases = self.admin = CosmosItemPort(wire, kind)

    async def close(self) -> None:
        await self._wire.close()


def judged(row: StoredItem | None, verb: Verb, made: Made, window: Window) -> Rule | None:
    """Return the rule to apply, if a rule applies at both ends of the window, with the same effect; else None: refused.

    A break may have two effects: if the lease may just have lapsed, the break frees it, which costs nobody a right.
    """
    first, last = (decide(row, verb, made(now, 0)) for now in (window.earliest, window.latest))
    if first is None or last is None:
        return None
    return first if first.then is last.then or verb is Verb.BREAK else None


def refused(item_id: str, row: StoredItem | None, verb: Verb, made: Made, window: Window) -> ItemRefusal:
    """Return the reason at the end of the window that refuses, and the item as all but its holder must treat it."""
    refuses_first = decide(row, verb, made(window.earliest, 0)) is None
    reason = refusal_reason(row, window.earliest if refuses_first else window.latest)
    return ItemRefusal(reason, shape.item_row(item_id, row, window.earliest) if row is not None else None)


async def now(call: Call, partition: str) -> Window:
    return shape.to_the_millisecond(await call.now(partition))


def view(document: Document, window: Window) -> ItemRow:
    row = shape.stored_item(document)
    assert row is not None, "the query leaves out what was deleted"
    return shape.item_row(document["itemId"], row, window.earliest)


def of_key(key: ItemKey, *, lease_s: float = 0.0, state: str | None = None, document: str | None = None) -> Made:
    def made(now: dt.datetime, token: int) -> Request:
        return Request(now, key.holder_id, key.token, lease_s=lease_s, state=state, document=document)

    return made


def one_slice(oldest: Sequence[Document], limit: int) -> Sequence[Document]:
    """Return `limit` of the documents, from a random place if there are more: others now try the first ones."""
    first = random.randrange(0, max(len(oldest), 1), limit)
    return oldest[first : first + limit]


def lease_only(changed: Document) -> list[Document]:
    fields = ("leaseDuration", "expiresAt")
    return [{"op": "set", "path": f"/lease/{name}", "value": changed["lease"][name]} for name in fields]


async def contended(call: Call) -> None:
    """Pause after another client's write succeeded. Raises Unavailable (busy) if there is no time to try again."""
    pause_s = random.uniform(0, CONTENDED_PAUSE_S_MAX)
    if pause_s >= call.left_s:
        raise Unavailable("Others kept changing the item for as long as this might take.", code="busy")
    await asyncio.sleep(pause_s)


async def all_answered(
    one: Callable[[ItemKey], Awaitable[ItemAnswer | None]], keys: Sequence[ItemKey]
) -> dict[ItemKey, ItemAnswer | None]:
    """Run all at once. If one got no answer, raises for the whole batch; to repeat the batch gives the same result.

    Raises Uncertain (half_done) if some were executed and the rest certainly not.
    """
    distinct = list(dict.fromkeys(keys))
    outcomes = await asyncio.gather(*(one(key) for key in distinct), return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if len(errors) < len(outcomes) and errors and all(isinstance(error, NOT_EXECUTED) for error in errors):
        raise Uncertain(f"A part of the batch was executed, the rest not: {errors[0]}", code="half_done")
    raise_first(errors)
    pairs = zip(distinct, outcomes, strict=True)
    return {key: outcome for key, outcome in pairs if not isinstance(outcome, BaseException)}


def raise_first(errors: Sequence[BaseException]) -> None:
    """Raise a mistake first, then an unknown outcome, then what was not executed; do nothing without errors."""
    for error in sorted(errors, key=lambda e: (isinstance(e, Unavailable | Uncertain), isinstance(e, Unavailable))):
        raise error
