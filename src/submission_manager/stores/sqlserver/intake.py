"""Intake on SQL Server: its comparisons ignore blanks at the end, and its driver takes no lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencehold import Unavailable
from fencehold.own_tables import Row
from submission_manager.model.intents import NewIntent
from submission_manager.ports import Submitted
from submission_manager.stores import rows
from submission_manager.stores.intake import Intake

CONFLICTS_MAX = 20
NO_NUMBER = 0  # stands for None where a number is needed


class SqlServerIntake(Intake):
    async def submit(self, new: NewIntent, limit_s: float) -> Submitted:
        rows.check_id(new.intent_id)
        if not self._is_kept(new.intent_id):
            raise rows.bad_id("SQL Server takes an id that ends with a blank for the one without.")
        return await super().submit(new, limit_s)

    def _is_kept(self, intent_id: str) -> bool:
        return super()._is_kept(intent_id) and not intent_id.endswith(" ")

    async def _stored_group(self, group: list[NewIntent], left_s: Callable[[], float]) -> list[Row]:
        """If another submission stores one of the ids first, the whole statement fails and stores nothing.

        The repeated statement then sees the other's row.
        """
        params = submission(group)
        for _ in range(CONFLICTS_MAX):
            try:
                return await self._rows("submit", params, left_s(), is_promise=True)
            except Unavailable as error:
                if error.code != "conflict":
                    raise
                fault = error
        raise fault


def submission(group: list[NewIntent]) -> dict[str, Any]:
    """The parameters of `submit`, for intents of one contract."""
    params = rows.contract_params(group[0].contract)
    limits = {name: params[name] or NO_NUMBER for name in ("max_acceptance_seconds", "max_attempts")}
    return {**params, **limits, **_packed(group)}


def _packed(group: list[NewIntent]) -> dict[str, Any]:
    """Pack a group into two parameters: a list cannot hold bytes, so hashes and payloads are in one byte string.

    The list holds the ids, and for each the start of its bytes and the length of its payload.
    """
    given, parts, place = [], [], 1
    for new in group:
        payload = rows.payload(new) or b""
        given.append({"id": new.intent_id, "from": place, "length": len(payload)})
        parts += [rows.payload_hash(new.payload), payload]
        place += len(parts[-2]) + len(payload)
    return {"given": given, "bytes": b"".join(parts)}
