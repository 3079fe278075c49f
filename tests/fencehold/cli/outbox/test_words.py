"""An event in words: short enough for a line, and true of its tries, its holder and its reaper."""

import datetime as dt
from dataclasses import replace

import pytest

from fencehold.cli.outbox.words import BRIEF_CHARS_MAX, ReaperSeen, brief, event_json, holder, pretty, tries, why
from fencehold.cli.screen import span
from fencehold.model.outbox.rules import Status
from fencehold.model.outbox.settings import outbox_settings
from fencehold.ports.events import EventRow, Stats

AT = dt.datetime(2026, 1, 31, 2, 0, tzinfo=dt.UTC)
ROW = EventRow(
    7, "0198c5d2-7c1e-7cc3-9d5e-3f2b8a1c4e77", "order.created", None, None, '{"a":1}', None, Status.PENDING, 0, AT, AT,
    None, 0, 5, None, None, None, None, -2.0, None,
)  # fmt: skip
DEAD = replace(ROW, status=Status.DEAD_LETTER, processed_at=AT, retry_count=5, last_error="boom")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0.0 s"), (3.21, "3.2 s"), (119, "119.0 s"), (300, "5 min"), (9000, "2.5 h"), (30 * 86400, "30.0 d")],
)
def test_a_span_is_told_as_a_person_would(seconds, words):
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("status", "begun"),
    [(Status.PENDING, 2), (Status.FAILED, 2), (Status.PROCESSING, 3), (Status.COMPLETED, 3), (Status.DEAD_LETTER, 2)],
)
def test_the_try_that_is_under_way_or_ended_well_counts_beside_those_that_failed(status, begun):
    row = replace(ROW, status=status, retry_count=2)
    assert (tries(row), event_json(row, with_content=False)["tries"]) == (begun, begun)


def test_a_dead_letter_was_given_up_when_its_tries_were_spent_and_rejected_before_that():
    assert why(DEAD) == "given up at 2026-01-31 02:00:00.000Z after 5 of 5 tries because: boom"
    assert why(replace(DEAD, retry_count=1)).startswith("rejected at ")


def test_an_event_that_was_redriven_says_so_until_it_fails_again():
    redriven = replace(ROW, root_cause="broker was down")
    assert why(redriven).endswith("made PENDING again by an operator because: broker was down")
    assert why(replace(redriven, last_error="boom", retry_count=1)).endswith("because: boom")


@pytest.mark.parametrize(
    ("ran_s_ago", "words"),
    [
        (None, "which has never run: start one with `fencehold reaper`"),
        (3.0, "which last ran 3.0 s ago"),
        (90.0, "which last ran 90.0 s ago and counts as missing: start one with `fencehold reaper`"),
    ],
)
def test_a_lapsed_event_waits_for_a_reaper_that_may_be_missing(ran_s_ago, words):
    reaper = ReaperSeen.of(Stats(0, 1, 0, 0, 0, 0.0, 1, ran_s_ago), outbox_settings(), "outbox")
    lapsed = replace(ROW, status=Status.PROCESSING, lock_token="web/1/ab12", locked_until=AT, held_s=-12.0)
    assert why(lapsed, reaper).startswith("lapsed 12.0 s ago, web/1 neither finished nor renewed it (try 1 of 5): ")
    assert why(lapsed, reaper).endswith(words)


def test_a_token_without_a_worker_is_shown_as_it_is():
    assert holder(replace(ROW, lock_token="by hand")) == "by hand"


@pytest.mark.parametrize("status", Status)
def test_a_line_of_a_list_is_one_short_line(status):
    row = replace(ROW, status=status, last_error="many\nlines " * 40, lock_token="w/1", held_s=1.0)
    assert len(brief(row)) <= BRIEF_CHARS_MAX
    assert "\n" not in brief(row)


def test_a_payload_written_by_hand_is_shown_though_it_is_no_json():
    assert pretty("no json") == '"no json"'
    assert event_json(replace(ROW, payload="no json"), with_content=True)["payload"] == "no json"
    assert "payload" not in event_json(ROW, with_content=False)


def test_what_is_due_after_a_failure_waits_for_a_worker_and_failed_for_its_own_reason() -> None:
    row = replace(DEAD, status=Status.FAILED, retry_count=1, waits_s=-2.0, last_error="ConnectionError: down")
    assert why(row).endswith("waits for a worker of its type; the last try failed because: ConnectionError: down")
