"""Stores submissions. The code is written once: the databases differ only in how a batch of submissions is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fencehold import Unavailable
from fencehold.own_tables import OwnTables, Row
from submission_manager.answers import Answers
from submission_manager.model.intents import Attempt, Intent, NewIntent, Status
from submission_manager.ports import Submitted
from submission_manager.stores import rows
from submission_manager.stores.asking import Asking, fixed
from submission_manager.stores.gathering import Gathering

INTAKE_LANES = 2  # a third would compete with the first two for the same disk


class Intake(Asking):
    """Implements IntakePort."""

    def __init__(self, tables: OwnTables, answers: Answers, lanes: int = INTAKE_LANES) -> None:
        super().__init__(tables, answers)
        self._tables = tables
        self._gathering = Gathering(self._store_batch, lanes)

    async def submit(self, new: NewIntent, limit_s: float) -> Submitted:
        rows.check_id(new.intent_id)
        return await self._of(self._gathering.submit(new, limit_s))

    async def _store_batch(self, batch: list[NewIntent], limit_s: float) -> list[Submitted]:
        left_s = fixed(limit_s)
        by_id = {new.intent_id: new for new in batch}
        stored = await self._stored(batch, left_s)
        answers = {row["intent_id"]: rows.created(by_id[row["intent_id"]], row) for row in stored}
        if others := [intent_id for intent_id in by_id if intent_id not in answers]:
            # Another statement: the first one's snapshot does not show rows committed while it waited.
            for row in await self._submitted(others, left_s()):
                answers[row["intent_id"]] = rows.known(by_id[row["intent_id"]], row)
        return [answers[new.intent_id] for new in batch]

    async def _stored(self, batch: list[NewIntent], left_s: Callable[[], float]) -> list[Row]:
        """Store those of the batch that are new, and return their rows."""
        by_contract: dict[int, list[NewIntent]] = {}
        for new in batch:
            by_contract.setdefault(id(new.contract), []).append(new)
        return [row for group in by_contract.values() for row in await self._stored_group(group, left_s)]

    async def _stored_group(self, group: list[NewIntent], left_s: Callable[[], float]) -> list[Row]:
        """Store those intents that are new, as `_stored` does, for intents that all have the same contract."""
        raise NotImplementedError

    async def _submitted(self, intent_ids: list[str], limit_s: float) -> list[Row]:
        return await self._rows("submitted", {"ids": intent_ids}, limit_s, is_promise=True)

    def _is_kept(self, intent_id: str) -> bool:
        """Return whether the database can tell this id from all others."""
        return rows.is_storable(intent_id)

    async def repeated(self, intent_id: str, target: str, payload: bytes | None, limit_s: float) -> Intent | None:
        found = await self._submitted([intent_id], limit_s) if self._is_kept(intent_id) else []
        same = [row for row in found if rows.is_repeat(target, payload, row)]
        return rows.intent(same[0]) if same else None

    async def read(self, intent_id: str, limit_s: float) -> Intent | None:
        found = await self._rows("read", {"id": intent_id}, limit_s) if self._is_kept(intent_id) else []
        return rows.intent(found[0]) if found else None

    async def history(self, intent_id: str, limit_s: float) -> tuple[Intent, list[Attempt]] | None:
        found = await self._rows("history", {"id": intent_id}, limit_s) if self._is_kept(intent_id) else []
        return rows.history(found)

    async def moved(self, intent_ids: Sequence[str], limit_s: float) -> list[str]:
        found = await self._rows("progress", {"ids": list(filter(self._is_kept, intent_ids))}, limit_s)
        return [row["intent_id"] for row in found if row["status"] != Status.PENDING or row["attempt_count"]]

    async def pending_counts(self, limit_s: float) -> Mapping[str, int]:
        return {row["submission_target"]: row["pending"] for row in await self._rows("pending_counts", {}, limit_s)}

    async def missing_tables(self, limit_s: float) -> list[str]:
        return await self._of(self._tables.missing(limit_s))

    async def rights_missing(self, limit_s: float) -> list[str]:
        return await self._of(self._tables.rights_missing(limit_s))

    async def owner(self, lease_name: str, limit_s: float) -> str:
        left_s = fixed(limit_s)
        while (found := rows.owner(await self._rows("owner", {}, left_s()), lease_name)) is None:
            try:
                await self._rows("own", {"lease_name": lease_name}, left_s())
            except Unavailable as error:
                if error.code != "conflict":  # which says that another instance was first: the next read finds it
                    raise
        return found

    async def close(self) -> None:
        await self._gathering.close()
