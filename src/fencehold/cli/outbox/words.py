"""An event of an outbox as text: what it is, and why it has its status."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, assert_never

from fencehold.cli.screen import moment, span, without_secrets
from fencehold.model.outbox.rules import Status
from fencehold.model.outbox.settings import OutboxSettings, outbox_flag
from fencehold.ports.events import EventRow, Stats
from fencehold.runtime.handlers.error_text import TRACEBACK_MARK
from fencehold.runtime.outbox.reaper import is_missing

BRIEF_CHARS_MAX = 60
CONTENT = ("payload", "metadata")
TIMES = ("created_at", "due_at", "processed_at", "locked_until")
ROUNDED = ("waits_s", "held_s")


@dataclass(frozen=True)
class ReaperSeen:
    """When the reaper last ran, and whether it counts as missing."""

    ran_s_ago: float | None
    missing: bool
    outbox: str

    @classmethod
    def of(cls, stats: Stats, settings: OutboxSettings, outbox: str) -> ReaperSeen:
        return cls(stats.reaper_ran_s_ago, is_missing(stats.reaper_ran_s_ago, settings), outbox)

    @property
    def command(self) -> str:
        return f"fencehold reaper{outbox_flag(self.outbox)}"

    def words(self) -> str:
        start_one = f"start one with `{self.command}`"
        if self.ran_s_ago is None:
            return f"which has never run: {start_one}"
        ran = f"which last ran {span(self.ran_s_ago)} ago"
        return f"{ran} and counts as missing: {start_one}" if self.missing else ran


def why(row: EventRow, reaper: ReaperSeen | None = None) -> str:
    """Return a sentence about why the event has its status, and what happens next.

    `reaper` is used if the event's lease has expired.
    """
    match row.status:
        case Status.PENDING | Status.FAILED:
            return _waiting(row)
        case Status.PROCESSING:
            return _held(row, reaper)
        case Status.COMPLETED:
            return _done(row)
        case Status.DEAD_LETTER:
            return _given_up(row)
        case other:
            assert_never(other)


def _waiting(row: EventRow) -> str:
    said = error_said(row)
    again = f"; try {row.retry_count + 1} of {row.max_retries}" if said else ""
    if row.waits_s > 0:
        words = f"waits until {moment(row.due_at)} (in {span(row.waits_s)}{again})"
    else:
        words = f"due since {moment(row.due_at)} ({span(-row.waits_s)} ago{again}), waits for a worker of its type"
    if said:
        return f"{words} because: {said}" if row.waits_s > 0 else f"{words}; the last try failed because: {said}"
    return f"{words}; made PENDING again by an operator because: {row.root_cause}" if row.root_cause else words


def _held(row: EventRow, reaper: ReaperSeen | None) -> str:
    who, this_try = holder(row), f"try {row.retry_count + 1} of {row.max_retries}"
    if is_live(row):
        until = moment(row.locked_until) if row.locked_until else "?"
        return f"held by {who} until {until} (another {span(row.held_s or 0)}), renewed while it works; {this_try}"
    waits = f"waiting for the reaper, {reaper.words()}" if reaper else "waiting for the reaper"
    return f"lapsed {span(-(row.held_s or 0))} ago, {who} neither finished nor renewed it ({this_try}): {waits}"


def _done(row: EventRow) -> str:
    by = f" by {holder(row)}" if row.lock_token else ""
    if row.processed_at is None:
        return f"done{by}"
    took_s = (row.processed_at - row.created_at).total_seconds()
    return f"done at {moment(row.processed_at)}{by}, {span(took_s)} after it was added, at try {row.retry_count + 1}"


def _given_up(row: EventRow) -> str:
    at = f" at {moment(row.processed_at)}" if row.processed_at else ""
    tries = f"{row.retry_count} of {row.max_retries} tries"
    # A handler's Reject ends an event before all its tries are used.
    ended = f"given up{at} after {tries}" if row.retry_count >= row.max_retries else f"rejected{at} after {tries}"
    return f"{ended} because: {error_said(row) or 'no reason was recorded'}"


def tries(row: EventRow) -> int:
    """Return how many tries of this event have begun, including one that is running and the one that succeeded."""
    return row.retry_count + (row.status in (Status.PROCESSING, Status.COMPLETED))


def brief(row: EventRow) -> str:
    """Return a shorter text than `why` does, for one line of a list."""
    match row.status:
        case Status.PENDING | Status.FAILED:
            words = f"due in {span(row.waits_s)}" if row.waits_s > 0 else f"due for {span(-row.waits_s)}"
            reason = error_said(row) or row.root_cause
            words += f": {reason}" if reason else ""
        case Status.PROCESSING if is_live(row):
            words = f"held by {holder(row)}, {span(row.held_s or 0)} left"
        case Status.PROCESSING:
            words = f"lapsed {span(-(row.held_s or 0))} ago, held by {holder(row)}"
        case Status.COMPLETED:
            words = f"done {moment(row.processed_at)}" if row.processed_at else "done"
        case Status.DEAD_LETTER:
            words = error_said(row)
    line = " ".join(words.split())
    return line if len(line) <= BRIEF_CHARS_MAX else line[: BRIEF_CHARS_MAX - 3] + "..."


def error_said(row: EventRow) -> str:
    """Return the text of the last error, without its traceback."""
    return (row.last_error or "").partition(TRACEBACK_MARK)[0]


def error_raised(row: EventRow) -> str:
    """Return the traceback of the last error, or as much of its end as was stored; empty if none was stored."""
    _, mark, where = (row.last_error or "").partition(TRACEBACK_MARK)
    return f"{mark.lstrip()}{where}" if mark else ""


def is_live(row: EventRow) -> bool:
    return row.held_s is not None and row.held_s > 0


def age_s(row: EventRow) -> float:
    """Return the event's age in seconds by the store's clock alone.

    When the store read the row, its clock was `waits_s` before `due_at`.
    """
    return (row.due_at - row.created_at).total_seconds() - row.waits_s


def holder(row: EventRow) -> str:
    """Return the worker's id, which is the first part of the token; the rest differs for every claim."""
    token = row.lock_token or "nobody"
    return token.rpartition("/")[0] or token


def event_json(row: EventRow, *, with_content: bool) -> dict[str, Any]:
    found: dict[str, Any] = {f.name: getattr(row, f.name) for f in dataclasses.fields(row) if f.name not in CONTENT}
    found |= {name: found[name].isoformat() for name in TIMES if found[name]}
    found |= {name: round(found[name], 3) for name in ROUNDED if found[name] is not None}
    found |= {"last_error": without_secrets(error_said(row)) or None}
    found |= {"root_cause": row.root_cause and without_secrets(row.root_cause)}
    if with_content:
        found["traceback"] = without_secrets(error_raised(row)) or None
        for name, text in zip(CONTENT, (row.payload, row.metadata), strict=True):
            found[name] = None if text is None else content(text)
    return {**found, "tries": tries(row), "worker_id": holder(row) if row.lock_token else None}


def content(text: str) -> Any:
    """Return the payload as it was added.

    A row written by hand may hold text that is not JSON: it is returned as text.
    """
    try:
        return json.loads(text)
    except ValueError:
        return text


def pretty(text: str) -> str:
    return json.dumps(content(text), indent=2, ensure_ascii=False)
