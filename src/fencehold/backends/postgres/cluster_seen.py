"""What any role can see of a cluster of servers, and the finding about failovers that follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from fencehold.ports.checkup import Condition, State

CHECK = "failover"
#: Protections against an old primary that runs on, which cannot be seen from inside the database.
UNSEEN = (
    "Not visible from here: whether Patroni has a watchdog, whether a proxy cuts the sessions of an old primary, and, "
    "for a role without pg_read_all_stats, whether a standby keeps up"
)
ADVICE = (
    'Have at least one of them: synchronous_mode (and open with durable="replicated"), a watchdog in mode required, '
    "HAProxy with on-marked-down shutdown-sessions; deploy/patroni has all three."
)


@dataclass(frozen=True)
class Seen:
    """What the server shows of its cluster: the row that the statement `cluster` (sql/cluster.sql) returns."""

    senders: int
    slots: int
    is_patroni: bool
    standbys: str
    is_proxied: bool = False

    @property
    def is_cluster(self) -> bool:
        return bool(self.senders or self.slots or self.is_patroni)

    def __str__(self) -> str:
        parts = [f"{self.senders} WAL senders", f"{self.slots} slots of standbys"]
        parts += ["started as Patroni starts it"] if self.is_patroni else []
        parts += ["reached through a proxy, a pooler or a translated address"] if self.is_proxied else []
        return ", ".join(parts)


def failover(seen: Seen) -> Condition:
    """Return the finding about failovers: a warning if there is a cluster, but commits wait for no standby.

    Other protections may exist that cannot be seen from inside the database; the text of the finding lists them.
    """
    if seen.standbys.strip():
        words = f"commits wait for {seen.standbys!r} ({seen}). {UNSEEN}"
        return Condition(CHECK, State.OK, words)
    if not seen.is_cluster:
        return Condition(CHECK, State.OK, "no standby is attached, as far as this role sees: nobody to fail over to")
    words = (
        f"a cluster ({seen}) whose commits wait for no standby (synchronous_standby_names is empty): a failover can "
        f"lose grants and fenced writes that were answered, and an old primary that runs on takes writes. {UNSEEN}"
    )
    return Condition(CHECK, State.WARNING, words, ADVICE)
