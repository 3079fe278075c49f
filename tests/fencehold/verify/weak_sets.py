"""Statement sets with one safeguard taken out, each with the invariant that `fencehold verify` has to find broken.

A set is a list of edits of the shipped .sql files: an edit whose text is no longer there is an error, not a set that
weakens nothing.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.tree import ROOT

SRC = ROOT / "src"
POSTGRES, SQLITE = "postgres", "sqlite"
FOLDERS = {POSTGRES: "fencehold/backends/postgres", SQLITE: "fencehold/backends/sqlite", "lock": "pgleaderlock"}
NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"


@dataclass(frozen=True)
class Edit:
    file: str  # below sql/
    old: str
    new: str
    times: int = 1
    folder: str = ""  # "": that of the set's database


@dataclass(frozen=True)
class WeakSet:
    name: str
    breaks: str
    database: str
    edits: tuple[Edit, ...]
    faults: str = "pause,kill"

    def __str__(self) -> str:
        return f"{self.name}-{self.database}"


def _set(name: str, breaks: str, database: str, *edits: Edit, faults: str = "pause,kill") -> WeakSet:
    return WeakSet(name, breaks, database, edits, faults)


def _no_limits(file: str, name: str, times: int) -> Edit:
    return Edit(file, f"CAST(:{name} AS text)", "'0'", times)


FENCE, RENEWS, SAVE = "no-stale-fenced-write", "only-the-holder-renews", "no-stale-item-save"
FREE = "i.holder_id IS NULL OR i.expires_at <= {now} OR i.holder_id = :holder"

SETS = (
    _set(
        "fence-by-exists", FENCE, POSTGRES,
        Edit("fence.sql", "       FOR KEY SHARE\n", ""), _no_limits("fence.sql", "limit_ms", 3),
        Edit("guard.sql", "           FOR KEY SHARE)", ")"), _no_limits("guard.sql", "fencehold_limit_ms", 1),
    ),
    _set(
        "guard-without-lock", FENCE, POSTGRES,
        Edit("guard.sql", "           FOR KEY SHARE)", ")"), _no_limits("guard.sql", "fencehold_limit_ms", 1),
        faults="slow",
    ),
    _set(
        "fence-without-epoch", FENCE, POSTGRES,
        Edit("fence.sql", " AND holder_id = :holder AND lease_epoch = :epoch", ""),
    ),
    _set(
        "fence-without-epoch", FENCE, SQLITE,
        Edit("fence.sql", " AND holder_id = :holder AND lease_epoch = :epoch", ""),
    ),
    _set(
        "guard-without-epoch", FENCE, SQLITE,
        Edit("guard.sql", " AND holder_id = :fencehold_holder AND lease_epoch = :fencehold_epoch", ""),
    ),
    _set(
        "renew-without-epoch", RENEWS, POSTGRES,
        Edit("renew.sql", " AND l.lease_epoch = a.lease_epoch", ""),
        Edit("renew.sql", " AND r.lease_epoch = a.lease_epoch", ""),
    ),
    _set("renew-without-epoch", RENEWS, SQLITE, Edit("renew.sql", " AND lease_epoch = :epoch", "")),
    _set(
        "renew-without-holder", RENEWS, POSTGRES,
        Edit("renew.sql", " AND l.holder_id = a.holder_id", ""),
        Edit("renew.sql", " AND r.holder_id = a.holder_id", ""),
    ),
    _set("renew-without-holder", RENEWS, SQLITE, Edit("renew.sql", " AND holder_id = :holder", "")),
    _set("renew-after-expiry", RENEWS, SQLITE, Edit("renew.sql", f"\n   AND expires_at > {NOW}", "")),
    _set(
        "acquire-without-expiry", "no-takeover-of-a-live-lease", POSTGRES,
        Edit("acquire.sql", " AND expires_at <= clock_timestamp()\n       FOR UPDATE", "\n       FOR UPDATE"),
        Edit("acquire.sql", " AND l.expires_at <= c.now", ""),
    ),
    _set(
        "acquire-without-expiry", "no-takeover-of-a-live-lease", SQLITE,
        Edit("acquire.sql", " WHERE expires_at <= excluded.acquired_at\n", ""),
    ),
    _set(
        "release-deletes-the-row", "epochs-only-rise", POSTGRES,
        Edit("release.sql",
             "UPDATE fencehold_leases AS l\n       SET renewed_at = c.now, expires_at = c.now\n      FROM (",
             "DELETE FROM fencehold_leases AS l USING ("),
        Edit("migrations/0001_leases.sql", "BEFORE DELETE ON fencehold_leases\n    FOR EACH ROW",
             "BEFORE DELETE ON fencehold_leases\n    FOR EACH ROW WHEN (false)"),
    ),
    _set(
        "release-deletes-the-row", "epochs-only-rise", SQLITE,
        Edit("release.sql", f"UPDATE fencehold_leases\n   SET renewed_at = {NOW}, expires_at = {NOW}\n",
             "DELETE FROM fencehold_leases\n"),
        Edit("migrations/0001_leases.sql", "BEFORE DELETE ON fencehold_leases\n",
             "BEFORE DELETE ON fencehold_leases WHEN 1 = 0\n"),
    ),
    _set(
        "complete-without-token", "no-stale-completion", POSTGRES,
        Edit("outbox/complete.sql", " AND o.lock_token = a.token", ""),
        Edit("outbox/turn.sql", " AND o.lock_token = a.token", ""),
    ),
    _set(
        "complete-without-token", "no-stale-completion", SQLITE,
        Edit("outbox/complete.sql", " AND lock_token = a.token", ""),
    ),
    _set(
        "complete-anything", "no-event-completed-twice", POSTGRES,
        Edit("outbox/complete.sql", "o.lock_token = a.token\n   AND coalesce(o.status, '') = 'PROCESSING' AND "
             "o.locked_until > clock_timestamp()", "true"),
        Edit("outbox/turn.sql", "o.lock_token = a.token\n       AND coalesce(o.status, '') = 'PROCESSING' AND "
             "o.locked_until > clock_timestamp()", "true"),
    ),
    _set(
        "claim-what-is-claimed", "one-claim-per-event", SQLITE,
        Edit("outbox/claim.sql", "e.status IN ('PENDING', 'FAILED') AND", "e.status <> 'COMPLETED' AND"),
    ),
    _set(
        "reap-before-the-end", "one-claim-per-event", POSTGRES,
        Edit("outbox/reap.sql", " AND locked_until <= statement_timestamp()", ""),
    ),
    _set(
        "reap-gives-up", "no-event-lost", POSTGRES,
        Edit("outbox/reap.sql", "THEN 'PENDING' ELSE", "THEN 'DEAD_LETTER' ELSE"),
    ),
    _set(
        "item-save-without-token", SAVE, POSTGRES,
        Edit("items/save.sql", "i.holder_id = :holder AND i.token = :token AND ", ""),
    ),
    _set(
        "item-save-without-token", SAVE, SQLITE,
        Edit("items/save.sql", " AND holder_id = :holder AND token = :token", ""),
    ),
    _set(
        "item-acquire-without-expiry", "one-holder-per-item", POSTGRES,
        Edit("items/acquire.sql", f"       AND ({FREE.format(now='clock_timestamp()')})\n", ""),
        Edit("items/acquire.sql", f"       AND ({FREE.format(now='c.now')})\n", ""),
    ),
    _set(
        "item-tokens-stand-still", "item-tokens-only-rise", POSTGRES,
        Edit("items/acquire.sql", "nextval('fencehold_items_token')", "1"),
    ),
    _set(
        "shared-advisory-lock", "one-advisory-lock-holder", POSTGRES,
        Edit("lock.sql", "pg_try_advisory_lock(", "pg_try_advisory_lock_shared(", folder="lock"),
    ),
)  # fmt: skip


def overlay(weak: WeakSet, place: Path) -> Path:
    """A folder with all statements, those of the set weakened."""
    for folder in FOLDERS.values():
        shutil.copytree(SRC / folder / "sql", place / folder / "sql")
    for edit in weak.edits:
        path = place / FOLDERS[edit.folder or weak.database] / "sql" / edit.file
        text = path.read_text(encoding="utf-8")
        if text.count(edit.old) != edit.times:
            raise LookupError(f"{weak}: {edit.file} has {edit.old!r} {text.count(edit.old)} times, not {edit.times}")
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
    return place
