"""The schedule in memory: order, stale entries, repeated observation, lanes, and what a million intents cost."""

from __future__ import annotations

import random
import tracemalloc

from submission_manager.schedule import STALE_MIN, Job, Schedule


def anywhere(lane: str) -> bool:
    return True


def taken(schedule: Schedule, now_us: int) -> list[str]:
    ids = []
    while (job := schedule.take(now_us, anywhere)) is not None:
        ids.append(job.intent_id)
    return ids


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
    assert (len(schedule), schedule.entries) == (1, 1)
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
    job = schedule.take(99, lambda lane: lane == "http://well")
    assert job == Job("well", "http://well", 20)
    assert schedule.next_due_us(lambda lane: False) is None


def test_stale_entries_do_not_pile_up():
    schedule = Schedule()
    for due_us in range(50_000):
        schedule.observe("x", due_us, "sms")
    assert schedule.entries <= STALE_MIN + 3
    assert taken(schedule, 50_000) == ["x"]


def test_a_random_walk_agrees_with_a_plain_map():
    draw = random.Random(7)
    schedule = Schedule()
    plain: dict[str, tuple[int, str]] = {}
    for _ in range(20_000):
        intent_id, lane = f"i{draw.randrange(300)}", draw.choice("ab")
        due_us = draw.choice([None, draw.randrange(1000)])
        lane = plain.get(intent_id, (0, lane))[1]
        schedule.observe(intent_id, due_us, lane)
        plain.pop(intent_id, None)
        if due_us is not None:
            plain[intent_id] = (due_us, lane)
        if draw.random() < 0.2:
            now_us = draw.randrange(1000)
            job = schedule.take(now_us, anywhere)
            due = [due for due, _ in plain.values() if due <= now_us]
            assert (job.due_us if job else None) == min(due, default=None)
            if job:
                assert plain.pop(job.intent_id) == (job.due_us, job.lane)
                schedule.settle(job, None)
        assert len(schedule) == len(plain)


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
