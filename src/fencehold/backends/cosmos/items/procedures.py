"""The verbs of items on Cosmos DB as stored procedures (js/lease.js, js/nextForState.js).

A verb is one request, decided by the server's own clock; if anything in it fails, all of it is undone. Only `find` is a
plain query: it is for people, and its answer may be a moment old. `get` is a procedure too, because a plain read could
miss what a procedure has just written.

A procedure works in one logical partition (a bucket). With several buckets a batch is one request for each bucket.
next_for_state asks the buckets one after another, each time beginning at a random one. Within one bucket the item that
is longest in its state is leased first; an older item in a bucket that was not asked is leased by a later call.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

from fencehold.backends.cosmos import faults
from fencehold.backends.cosmos.documents import Document, document_id
from fencehold.backends.cosmos.items import documents as shape
from fencehold.backends.cosmos.items.items import NOT_EXECUTED, CosmosItemPort, CosmosItems, half_done, together
from fencehold.backends.cosmos.schema import CosmosSchema
from fencehold.backends.cosmos.wire import Call, Wire
from fencehold.model.errors import FenceholdError, Unavailable, Uncertain
from fencehold.model.items.rules import ItemKey, Request, Verb
from fencehold.ports.items import EVER, ItemAnswer, ItemRefusal, ItemRow, Stretch
from fencehold.ports.schema import Waits, unheard

K = TypeVar("K")  # the key of a lease, or an item's id

SCRIPTS = ("lease", "nextForState")
BATCH_MAX = 100  # about 1,300 request units: one call must fit into what a partition may spend in a second


@dataclass(frozen=True)
class Procedure:
    """A stored procedure: its id and its JavaScript.

    The id contains a hash of the JavaScript, so that clients of two versions can run side by side, each with its own
    procedures.
    """

    id: str
    body: str


@functools.cache
def procedure(script: str) -> Procedure:
    body = (resources.files("fencehold.backends.cosmos") / "js" / f"{script}.js").read_text("utf-8")
    return Procedure(f"fencehold-{script}-{hashlib.sha256(body.encode()).hexdigest()[:12]}", body)


class ProcedureItemPort(CosmosItemPort):
    """The verbs of items, run as stored procedures.

    The documents are the same as those of CosmosItemPort, which writes by etag: clients of both kinds may work at the
    same time.
    """

    async def get(self, ids: Sequence[str], limit_s: float) -> dict[str, ItemRow]:
        try:
            answers = await self._ask("get", {item_id: (item_id, {}) for item_id in ids}, limit_s)
        except Uncertain as error:  # executed or not, a read changes nothing
            raise Unavailable(error.message, hint=error.hint, code=error.code) from None
        return {item_id: answer for item_id, answer in answers.items() if isinstance(answer, ItemRow)}

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
        call = Call(self._wire, "next_for_state", limit_s)
        taken: list[ItemRow] = []
        waiting = in_turn(self._partitions()) if limit > 0 else []
        while waiting and len(taken) < limit:
            asked = min(limit - len(taken), BATCH_MAX)
            skipped = [document_id(item_id) for item_id in skip if self._partition(item_id) == waiting[0]]
            ask = [state, asked, holder_id, shape.duration_ms(lease_s), skipped, *shape.stretch_ms(stretch)]
            try:
                reply = await execute(call, waiting[0], "nextForState", ask)
            except FenceholdError:
                if not taken:
                    raise
                break  # return those already leased; leases of the call without an answer lapse by themselves
            rows = (shape.seen(one, shape.instant(reply["now"])) for one in reply["items"])
            taken += [row for row in rows if row is not None]
            if len(reply["items"]) < asked and not reply["isStopped"]:
                waiting.pop(0)
        return sorted(taken, key=lambda row: row.state_timestamp)

    async def _one(self, verb: Verb, item_id: str, asked: Request, limit_s: float) -> ItemAnswer | None:
        told = await self._ask(verb.value, {item_id: (item_id, self._fields(verb, item_id, asked))}, limit_s)
        return told[item_id]

    async def _batch(
        self, verb: Verb, asked: Mapping[ItemKey, Request], limit_s: float
    ) -> dict[ItemKey, ItemAnswer | None]:
        requests = {key: (key.id, self._fields(verb, key.id, one)) for key, one in asked.items()}
        return await self._ask(verb.value, requests, limit_s)

    def _fields(self, verb: Verb, item_id: str, asked: Request) -> Document:
        fields: Document = {
            "holder": asked.holder_id, "token": asked.token, "leaseDuration": shape.duration_ms(asked.lease_s),
        }  # fmt: skip
        changed = {"state": asked.state, "document": asked.document}
        fields.update((name, value) for name, value in changed.items() if value is not None)
        if verb is Verb.PUT:  # what else a new document has
            partition = self._partition(item_id)
            fields["item"] = {"pk": partition, "itemId": item_id, "kind": self._kind, "id": document_id(item_id)}
        return fields

    async def _ask(
        self, verb: str, asked: Mapping[K, tuple[str, Document]], limit_s: float
    ) -> dict[K, ItemAnswer | None]:
        """Send one request for each bucket, all at once, and return the answer of each key.

        `asked` holds for each key the item's id and the other fields of its request.
        """
        call = Call(self._wire, verb, limit_s)
        parts: dict[str, dict[K, Document]] = {}
        for key, (item_id, fields) in asked.items():
            parts.setdefault(self._partition(item_id), {})[key] = {"id": document_id(item_id), **fields}
        told = await together({where: answers(call, verb, where, [*named.values()]) for where, named in parts.items()})
        pairs = (pair for where, named in parts.items() for pair in zip(named, told[where], strict=True))
        return {key: answered(answer) for key, answer in pairs}


class ProcedureItems(CosmosItems):
    def __init__(self, wire: Wire, kind: str) -> None:
        super().__init__(wire, kind)
        self.schema = ProcedureSchema(wire, kind)
        self.port = self.leases = self.admin = ProcedureItemPort(wire, kind)


class ProcedureSchema(CosmosSchema):
    def __init__(self, wire: Wire, kind: str) -> None:
        super().__init__(wire)
        self._any_partition = shape.item_partition(kind, 0)

    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        """Create the container and the procedures, and return the steps just applied. Safe to repeat and in parallel.

        A procedure that has this id already has exactly this content, because the id contains its hash.
        """
        steps = await super().init(limit_s, waits)
        call = Call(self._wire, "init", limit_s)
        if self._wire.address.credential:
            await self._check_uploaded(call)
            return steps
        wanted = [procedure(script) for script in SCRIPTS]
        return steps + [f"procedure {one.id}" for one in wanted if await call.create_procedure(one.id, one.body)]

    async def _check_uploaded(self, call: Call) -> None:
        """Raise ConfigurationError (schema_missing) if a procedure is missing. Changes nothing.

        A login by Entra ID may execute procedures, but neither upload nor list them. So each is executed once, with a
        request that has no effect.
        """
        nothing: dict[str, list[Any]] = {"lease": ["get", []], "nextForState": ["", 1, "", 0, [], 0, 0]}
        for script in SCRIPTS:
            name = procedure(script).id
            if await call.execute_procedure(self._any_partition, name, nothing[script]) is None:
                raise faults.only_by_hand(f"There is no stored procedure {name}")

    def script(self) -> str:
        address = self._wire.address
        lines = (
            "az cosmosdb sql stored-procedure create --account-name $ACCOUNT --resource-group $GROUP --database-name "
            f"{address.database} \\\n    --container-name {address.container} --name {procedure(script).id} "
            f"--body @{script}.js  # of fencehold/backends/cosmos/js\n"
            for script in SCRIPTS
        )
        return super().script() + "".join(lines)


async def answers(call: Call, verb: str, partition: str, requests: Sequence[Document]) -> list[Document]:
    """Return one answer for each request, in their order. The requests are of one partition.

    A procedure may stop early; it is then run again for the requests that it left. Raises Uncertain (half_done) if some
    requests were executed and the others were not.
    """
    told: list[Document] = []
    while len(told) < len(requests):
        rest = requests[len(told) :][:BATCH_MAX]
        try:
            told += (await execute(call, partition, "lease", [verb, rest]))["answers"]
        except NOT_EXECUTED as error:
            raise (half_done(error) if told else error) from None
    return told


async def execute(call: Call, partition: str, script: str, parameters: Sequence[Any]) -> Mapping[str, Any]:
    wanted = procedure(script).id
    reply: Mapping[str, Any] | None = await call.execute_procedure(partition, wanted, parameters)
    if reply is None:
        raise faults.schema_missing(f"there is no stored procedure {wanted}")
    return reply


def in_turn(partitions: Sequence[str]) -> list[str]:
    """Return the partitions in their order, but beginning at a random one, so that no partition always comes first."""
    first = random.randrange(len(partitions))
    return [*partitions[first:], *partitions[:first]]


def answered(answer: Document) -> ItemAnswer | None:
    """Return the item or the refusal of one answer. None: the request was executed, and there is no item now."""
    item = shape.seen(answer["item"], shape.instant(answer["now"]))
    return item if answer["refused"] is None else ItemRefusal(answer["refused"], item)
