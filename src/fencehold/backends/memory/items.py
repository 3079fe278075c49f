"""Items in memory: shared by all stores of one process that use the same memory:// name; each kind is separate."""

from __future__ import annotations

import datetime as dt
import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from fencehold.backends.absent import NoTables
from fencehold.model.items.rules import ItemKey, Request, Row, StoredItem, Verb, decide, refusal_reason, row_state
from fencehold.ports.items import EVER, ItemAnswer, ItemRefusal, ItemRow, NewItem, Stretch

Place = tuple[str, str]  # kind and id


@dataclass
class ItemShelf:
    """All items of one memory store, by kind and id. One lock makes every verb atomic.

    One counter gives the tokens of all items, so that an item that is deleted and put again never repeats a token.
    """

    now: Callable[[], dt.datetime]
    rows: dict[Place, StoredItem] = field(default_factory=dict)
    in_state: dict[Place, dict[str, None]] = field(default_factory=dict)  # kind and state: ids
    token_last: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def next_token(self) -> int:
        self.token_last += 1
        return self.token_last

    def apply(self, place: Place, verb: Verb, request: Request) -> bool:
        """Change the item at `place` (kind and id) as the rule table says.

        Return False, without a change, if the table refuses the verb.
        """
        before = self.rows.get(place)
        rule = decide(before, verb, request)
        if rule is None:
            return False
        self._keep(place, before, rule.then(before, request))
        return True

    def _keep(self, place: Place, before: StoredItem | None, after: StoredItem | None) -> None:
        kind, item_id = place
        if before is not None and (after is None or before.state != after.state):
            del self.in_state[kind, before.state][item_id]
        if after is None:
            self.rows.pop(place, None)
        else:
            self.rows[place] = after
            self.in_state.setdefault((kind, after.state), {}).setdefault(item_id)

    def ids(self, kind: str, state: str | None) -> Iterator[str]:
        if state is not None:
            return iter(self.in_state.get((kind, state), ()))
        return (item_id for of_kind, item_id in self.rows if of_kind == kind)


class MemoryItemPort:
    def __init__(self, shelf: ItemShelf, kind: str) -> None:
        self._shelf = shelf
        self._kind = kind

    async def put(self, item: NewItem, limit_s: float) -> ItemAnswer:
        with self._shelf.lock:
            request = Request(self._shelf.now(), item.holder_id, state=item.state, document=item.document_json)
            return self._answer(item.id, Verb.PUT, request)

    async def get(self, ids: Sequence[str], limit_s: float) -> dict[str, ItemRow]:
        with self._shelf.lock:
            now = self._shelf.now()
            views = ((item_id, self._view(item_id, now)) for item_id in ids)
            return {item_id: view for item_id, view in views if view}

    async def acquire(self, item_id: str, holder_id: str, lease_s: float, limit_s: float) -> ItemAnswer:
        with self._shelf.lock:
            return self._answer(item_id, Verb.ACQUIRE, self._grant(self._shelf.now(), holder_id, lease_s))

    async def renew(self, keys: Sequence[ItemKey], lease_s: float, limit_s: float) -> dict[ItemKey, dt.datetime]:
        with self._shelf.lock:
            now = self._shelf.now()
            requests = ((key, Request(now, key.holder_id, key.token, lease_s=lease_s)) for key in keys)
            kept = [key for key, request in requests if self._apply(key.id, Verb.RENEW, request)]
            return dict.fromkeys(kept, now + dt.timedelta(seconds=lease_s))

    async def break_leases(self, keys: Sequence[ItemKey], limit_s: float) -> dict[ItemKey, ItemRefusal]:
        with self._shelf.lock:
            now = self._shelf.now()
            answers = (
                (key, self._answer_or_none(key.id, Verb.BREAK, Request(now, key.holder_id, key.token))) for key in keys
            )
            return {key: answer for key, answer in answers if isinstance(answer, ItemRefusal)}

    async def save(self, key: ItemKey, state: str | None, document_json: str | None, limit_s: float) -> ItemAnswer:
        with self._shelf.lock:
            now = self._shelf.now()
            request = Request(now, key.holder_id, key.token, state=state, document=document_json)
            return self._answer(key.id, Verb.SAVE, request)

    async def delete(self, key: ItemKey, limit_s: float) -> ItemRefusal | None:
        with self._shelf.lock:
            request = Request(self._shelf.now(), key.holder_id, key.token)
            answer = self._answer_or_none(key.id, Verb.DELETE, request)
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
        with self._shelf.lock:
            now = self._shelf.now()
            asked = Request(now, holder_id, lease_s=lease_s, state=state)
            skipped = frozenset(skip)
            ids = (i for i in self._ids(state, stretch) if i not in skipped and decide(self._row(i), Verb.NEXT, asked))
            taken = self._oldest(ids, limit)
            for item_id in taken:
                self._apply(item_id, Verb.NEXT, self._grant(now, holder_id, lease_s, state))
            return self._views(taken, now)

    async def find(self, state: str | None, limit: int, limit_s: float) -> list[ItemRow]:
        with self._shelf.lock:
            return self._views(self._oldest(self._ids(state), limit), self._shelf.now())

    async def kinds(self, limit_s: float) -> list[str]:
        with self._shelf.lock:
            return sorted({kind for kind, _ in self._shelf.rows})

    def _grant(self, now: dt.datetime, holder_id: str, lease_s: float, state: str | None = None) -> Request:
        return Request(now, holder_id, next_token=self._shelf.next_token(), lease_s=lease_s, state=state)

    def _ids(self, state: str | None, stretch: Stretch = EVER) -> Iterator[str]:
        ids = self._shelf.ids(self._kind, state)
        return ids if stretch == EVER else (i for i in ids if self._is_within(i, stretch))

    def _is_within(self, item_id: str, stretch: Stretch) -> bool:
        at = self._shelf.rows[self._kind, item_id].state_timestamp
        return (stretch.since is None or at >= stretch.since) and (stretch.before is None or at < stretch.before)

    def _row(self, item_id: str) -> StoredItem | None:
        return self._shelf.rows.get((self._kind, item_id))

    def _apply(self, item_id: str, verb: Verb, request: Request) -> bool:
        return self._shelf.apply((self._kind, item_id), verb, request)

    def _answer(self, item_id: str, verb: Verb, request: Request) -> ItemAnswer:
        answer = self._answer_or_none(item_id, verb, request)
        assert answer is not None, "the rule kept the item"
        return answer

    def _answer_or_none(self, item_id: str, verb: Verb, request: Request) -> ItemAnswer | None:
        if self._apply(item_id, verb, request):
            return self._view(item_id, request.now)
        return ItemRefusal(refusal_reason(self._row(item_id), request.now), self._view(item_id, request.now))

    def _oldest(self, ids: Iterator[str], limit: int) -> list[str]:
        """Return up to `limit` of the ids, those that are longest in their state first.

        Ids with equal times stay in the order given.
        """
        return heapq.nsmallest(limit, ids, key=lambda item_id: self._shelf.rows[self._kind, item_id].state_timestamp)

    def _views(self, ids: Sequence[str], now: dt.datetime) -> list[ItemRow]:
        return [view for view in (self._view(item_id, now) for item_id in ids) if view]

    def _view(self, item_id: str, now: dt.datetime) -> ItemRow | None:
        row = self._row(item_id)
        if row is None:
            return None
        view = ItemRow(item_id, row.state, row.state_timestamp, row.document, row.token)
        if row_state(row, now) is not Row.LIVE or row.expires_at is None:
            return view
        return replace(
            view, holder_id=row.holder_id, leased_at=row.leased_at, lease_s=row.lease_s, expires_at=row.expires_at,
            remaining_s=(row.expires_at - now).total_seconds(),
        )  # fmt: skip


class MemoryItems:
    def __init__(self, shelf: ItemShelf, kind: str) -> None:
        self.schema = NoTables("the memory store")
        self.port = self.leases = self.admin = MemoryItemPort(shelf, kind)

    async def close(self) -> None:
        return None
