"""The warning that the server does not report its timeline, and what to do about it.

The timeline is a number that changes with each failover; it keeps the epochs granted before and after one apart.
"""

from __future__ import annotations

from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.facts import FactSink

HINT = (
    "GRANT EXECUTE ON FUNCTION pg_current_wal_insert_lsn(), pg_walfile_name(pg_lsn), pg_control_system() TO this role; "
    "where there is no such function, use synchronous replication."
)


def text(why: str) -> str:
    return f"the server does not tell its timeline ({why}): after a failover that loses commits an epoch may come twice"


class UnreadTimeline:
    """Reports the warning as a fact when it is called for the first time; later calls do nothing.

    All connections of a store share one, so the warning is given once for each store.
    """

    def __init__(self, facts: FactSink | None) -> None:
        self._facts = facts

    def __call__(self, why: str) -> None:
        facts, self._facts = self._facts, None
        if facts is not None:
            StoreFacts(facts).timeline_unread(detail=text(why), hint=HINT)
