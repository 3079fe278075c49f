"""The schedule in memory: order, deadlines, repeated observation, lanes, and what a million intents cost."""

from __future__ import annotations

import random
import time
import tracemalloc

from submission_manager.schedule.schedule import STALE_MIN, Job, Schedule


def anywhere(lane: str) -> int | None:
    return 0


def taken(schedule: Schedule, now_us: int) -> list[str]:
    ids = []
    while (job := schedule.take(now_us, anywhere)) is not None:
        ids.append(job.intent_id)
    return ids


def entries(schedule: Schedule) -> int:
    """How many heap entries are kept in memory, stale ones included."""
    levels = [level for lane in schedule._lanes.values() for level in lane._levels.values()]
    due = sum(len(level.dated) + len(level.undated) for level in levels)
    return due + sum(len(lane._waiting) for lane in schedule._lanes.values()) + len(schedule._deadlines)


def test_what_is_due_first_comes_first_and_what_is_not_due_stays():
    schedule = Schedule()
    for intent_id, due_us in (("late", 30), ("early", 10), ("middle", 20), ("future", 99)):
        schedule.observe(intent_id, due_us, "sms")
    assert taken(schedule, 50) == ["early", "middle", "late"]
    assert schedule.next_due_us(anywhere) == 99


def test_intents_due_at_the_same_instant_keep_the_order_they_came_in():
    schedule = Schedule()
    for intent_id in "cab":
        schedule.observe(intent_id, 10, "sms")
    assert taken(schedule, 10) == ["c", "a", "b"]


def test_observing_the_same_row_again_changes_nothing():
    schedule = Schedule()
    for _ in range(5):
        schedule.observe("x", 10, "sms")
    assert (len(schedule), entries(schedule)) == (1, 1)
    assert taken(schedule, 10) == ["x"]


def test_a_new_due_replaces_the_old_one():
    schedule = Schedule()
    schedule.observe("x", 10, "sms")
    schedule.observe("x", 40, "sms")
    assert taken(schedule, 30) == []
    assert taken(schedule, 40) == ["x"]


def test_an_intent_that_is_over_is_forgotten():
    schedule = Schedule()
    schedule.observe("x", 10, "sms")
    schedule.observe("x", None, "sms")
    assert taken(schedule, 99) == []
    assert len(schedule) == 0


def test_an_intent_that_is_taken_is_not_enqueued_by_what_is_observed_meanwhile():
    schedule = Schedule()
    schedule.observe("x", 10, "sms")
    job = schedule.take(10, anywhere)
    schedule.observe("x", 10, "sms")
    assert taken(schedule, 99) == []
    assert job is not None
    schedule.settle(job, 60)
    assert taken(schedule, 59) == []
    assert taken(schedule, 60) == ["x"]


def test_a_due_that_comes_back_is_taken_once():
    schedule = Schedule()
    for due_us in (10, 20, 10):
        schedule.observe("x", due_us, "sms")
    assert taken(schedule, 99) == ["x"]
    assert schedule.next_due_us(anywhere) is None


def test_a_lane_without_room_is_passed_over():
    schedule = Schedule()
    schedule.observe("hung", 10, "http://hung")
    schedule.observe("well", 20, "http://well")
    job = schedule.take(99, lambda lane: 0 if lane == "http://well" else None)
    assert job == Job("well", "http://well", 20)
    assert schedule.next_due_us(lambda lane: None) is None


def test_of_what_is_due_the_earliest_deadline_goes_first_and_what_has_none_last():
    schedule = Schedule(virtual_us=1000)
    schedule.observe("undated", 1, "sms")
    for intent_id, deadline_us in (("far", 900), ("soon", 100), ("later", 500)):
        schedule.observe(intent_id, 10, "sms", deadline_us=deadline_us)
    schedule.observe("not due", 60, "sms", deadline_us=90)
    assert taken(schedule, 50) == ["soon", "later", "far", "undated"]


def test_a_higher_priority_goes_before_an_earlier_deadline():
    schedule = Schedule()
    schedule.observe("low", 1, "sms", deadline_us=100)
    schedule.observe("high", 2, "sms", deadline_us=900, priority=5)
    schedule.observe("high, undated", 3, "sms", priority=5)
    assert taken(schedule, 50) == ["high", "high, undated", "low"]


def starts(schedule: Schedule, count: int, now_us: int) -> str:
    """The first letters of the next to start."""
    jobs = [schedule.take(now_us, anywhere) for _ in range(count)]
    return "".join(job.intent_id[0] for job in jobs if job is not None)


def test_what_has_no_deadline_takes_one_start_of_four_once_its_virtual_one_is_earlier():
    schedule = Schedule(virtual_us=100)
    for number in range(100):
        schedule.observe(f"bulk {number}", 0, "sms")
        schedule.observe(f"urgent {number}", 50, "sms", deadline_us=99 if number < 10 else 150)
    assert starts(schedule, 10, 60) == "u" * 10
    assert starts(schedule, 16, 60) == "buuu" * 4


def test_no_priority_starves_what_has_no_deadline():
    schedule = Schedule(virtual_us=100)
    for number in range(20):
        schedule.observe(f"low {number}", 0, "sms")
        schedule.observe(f"high {number}", 50, "sms", priority=9)
    assert starts(schedule, 12, 60) == "hhhl" * 3


def test_a_lane_with_fewer_attempts_under_way_goes_first():
    schedule = Schedule()
    schedule.observe("busy", 10, "http://busy", deadline_us=20)
    schedule.observe("idle", 15, "http://idle")
    job = schedule.take(16, {"http://busy": 3, "http://idle": 0}.get)
    assert job is not None
    assert job.intent_id == "idle"


def test_what_is_past_its_deadline_has_no_turn_but_an_end_whatever_room_there_is():
    schedule = Schedule()
    for number in range(10):
        schedule.observe(f"x{number}", 0, "sms", deadline_us=100 - number)
    assert schedule.next_deadline_us() == 91
    assert starts(schedule, 5, 95) == "xxxxx"
    first = schedule.expired(95, limit=3)
    assert [job.intent_id for job in first] == ["x9", "x8", "x7"]
    assert [job.intent_id for job in schedule.expired(95, limit=100)] == ["x6", "x5"]
    assert schedule.next_deadline_us() is None, "the other five are in hand"


def test_an_end_that_could_not_be_made_is_tried_again_later_and_not_before():
    schedule = Schedule()
    schedule.observe("x", 0, "sms", deadline_us=100)
    (job,) = schedule.expired(100, 10)
    schedule.observe("x", 0, "sms", deadline_us=100)
    schedule.settle(job, job.due_us, expires_us=200)
    assert schedule.expired(199, 10) == []
    assert schedule.take(199, anywhere) is None
    assert schedule.expired(200, 10) == [job]


def test_an_attempt_that_ends_after_its_deadline_without_an_end_is_ended_then():
    schedule = Schedule()
    schedule.observe("x", 0, "sms", deadline_us=100)
    job = schedule.take(50, anywhere)
    assert job is not None
    assert schedule.expired(150, 10) == []
    schedule.settle(job, 160)
    assert [one.intent_id for one in schedule.expired(150, 10)] == ["x"]


def test_stale_entries_do_not_pile_up():
    schedule = Schedule()
    for due_us in range(50_000):
        schedule.observe("x", due_us, "sms")
    assert entries(schedule) <= STALE_MIN + 3
    assert taken(schedule, 50_000) == ["x"]


def test_a_random_walk_agrees_with_a_plain_map():
    draw = random.Random(7)
    schedule = Schedule()
    plain: dict[str, tuple[int, str]] = {}
    for now_us in range(20_000):
        intent_id, lane = f"i{draw.randrange(300)}", draw.choice("ab")
        due_us = draw.choice([None, now_us + draw.randrange(-500, 500)])
        lane = plain.get(intent_id, (0, lane))[1]
        schedule.observe(intent_id, due_us, lane, now_us=draw.choice([0, now_us]))
        plain.pop(intent_id, None)
        if due_us is not None:
            plain[intent_id] = (due_us, lane)
        if draw.random() < 0.2:
            job = schedule.take(now_us, anywhere)
            due = [due for due, _ in plain.values() if due <= now_us]
            assert (job.due_us if job else None) == min(due, default=None)
            if job:
                assert plain.pop(job.intent_id) == (job.due_us, job.lane)
                schedule.settle(job, None)
        assert len(schedule) == len(plain)


def test_a_hundred_thousand_deadlines_are_kept_in_order_without_a_scan():
    schedule = Schedule()
    for number in range(100_000):
        schedule.observe(f"x{number}", 0, "sms", deadline_us=1_000_000 + number)
    began = time.perf_counter()
    for now_us in range(1_000_000, 1_002_000):
        assert len(schedule.expired(now_us, 500)) == 1
    assert time.perf_counter() - began < 2, "2,000 scans of 100,000 take minutes"


def test_an_intent_costs_less_than_350_bytes():
    """So that a million of them leave the leader's process well below 600 MB."""
    count = 50_000
    tracemalloc.start()
    try:
        schedule = Schedule()
        for number in range(count):
            schedule.observe(f"order-2026-11-16-{number:019d}", 1_794_800_000_000_000 + number, "http://sms")
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / count < 350
