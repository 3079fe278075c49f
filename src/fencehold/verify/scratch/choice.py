"""The kind of scratch place that fits the database of a run; its driver is imported only then."""

from __future__ import annotations

from fencehold.verify.plan import Plan
from fencehold.verify.scratch.place import Scratch


def scratch_of(plan: Plan) -> Scratch:
    if plan.database == "sqlite":
        from fencehold.verify.scratch.sqlite import SqliteScratch

        return SqliteScratch(plan)
    from fencehold.verify.scratch.postgres import PostgresScratch

    return PostgresScratch(plan)
