"""Who hears a fact, and how loud it is in the log."""

import logging
import shlex

import pytest

from fencehold.telemetry.fan_out import FanOut
from fencehold.telemetry.logs import LogSink
from tests.fencehold.ports.facts_contract import CONTRACT

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR


class Heard:
    def __init__(self):
        self.facts = []

    def fact(self, event, **fields):
        self.facts.append((event, fields))


class Broken:
    def fact(self, event, **fields):
        raise ValueError("the secret password")


@pytest.fixture
def logged(caplog):
    caplog.set_level(DEBUG, "fencehold")
    return caplog


def test_one_broken_sink_harms_neither_those_before_it_nor_those_after(caplog):
    before, after = Heard(), Heard()
    FanOut(before, Broken(), after).fact("events_claimed", outbox="orders", claimed=3)
    assert before.facts == after.facts == [("events_claimed", {"outbox": "orders", "claimed": 3})]


def test_a_broken_sink_is_told_of_once_without_what_it_said(caplog):
    sinks = FanOut(Broken(), Heard(), Broken())
    for _ in range(3):
        sinks.fact("events_claimed", claimed=3)
    assert [record.getMessage() for record in caplog.records] == [
        "sink_failed sink=Broken fact=events_claimed error=ValueError"
    ] * 2


def test_a_fan_out_of_nobody_is_silent():
    FanOut().fact("events_claimed", claimed=3)


@pytest.mark.parametrize(
    ("event", "changed", "level"),
    [
        ("events_claimed", {}, DEBUG),
        ("events_completed", {}, DEBUG),
        ("worker_heartbeat", {}, DEBUG),
        ("outbox_stats", {}, DEBUG),
        ("worker_started", {}, INFO),
        ("event_failed", {}, WARNING),
        ("event_failed", {"status": "DEAD_LETTER"}, ERROR),
        ("event_lost", {}, WARNING),
        ("event_aborted", {}, WARNING),
        ("worker_saturated", {}, WARNING),
        ("worker_died", {}, ERROR),
        ("worker_heartbeat_failed", {}, ERROR),
        ("reaper_run", {"recovered": 0, "dead": 0}, DEBUG),
        ("reaper_run", {"recovered": 2, "dead": 0}, INFO),
        ("reaper_run", {"recovered": 0, "dead": 1}, ERROR),
        ("events_redriven", {}, INFO),
        ("leader_renewed", {}, DEBUG),
        ("leader_renewed", {"failures": 7, "not_logged": 6}, INFO),
        ("leader_renew_failed", {"sql_error": "gone"}, WARNING),
        ("leader_renew_failed", {"sql_error": "gone", "is_repeat": True}, DEBUG),
        ("leader_acquire_failed", {"sql_error": "gone"}, DEBUG),  # at every try: store_unreachable says it once
        ("store_unreachable", {}, WARNING),
        ("store_answers", {}, INFO),
    ],
)
def test_a_fact_is_as_loud_as_what_happened(logged, event, changed, level):
    LogSink().fact(event, **{**CONTRACT[event], **changed})
    assert [record.levelno for record in logged.records] == [level]


def test_payloads_and_passwords_never_pass(logged):
    error = "could not reach postgresql://me:hunter2@host/db"
    LogSink().fact("event_failed", id=7, payload={"iban": "DE89"}, metadata_json='{"iban":"DE89"}', error=error)
    (record,) = logged.records
    assert "DE89" not in record.getMessage() + str(vars(record))
    assert "hunter2" not in record.getMessage() + str(vars(record))
    assert vars(record)["fencehold"]["id"] == 7


def test_names_in_a_list_are_all_shown_up_to_a_hundred_and_then_counted(logged):
    LogSink().fact("event_failed", few=["a", "b"], ids=[f"id-{n}" for n in range(103)])
    text = logged.records[0].getMessage()
    assert text.startswith("""event_failed few="['a', 'b']" ids="['id-0', 'id-1', """)
    assert text.endswith("""'id-98', 'id-99'] and 3 more\"""")


def test_a_program_can_read_a_line_whose_texts_have_quotes(logged):
    LogSink().fact("event_failed", error='server at "127.0.0.1", port', path=r"C:\a b", word='a"b')
    text = logged.records[0].getMessage()
    assert shlex.split(text) == ["event_failed", 'error=server at "127.0.0.1", port', r"path=C:\a b", 'word=a"b']


def test_a_field_with_nothing_in_it_is_not_shown(logged):
    LogSink().fact("store_unreachable", error="gone", hint="", code=None, tries=0, following=[])
    (record,) = logged.records
    assert record.getMessage() == "store_unreachable error=gone tries=0 following=[]"
    assert vars(record)["fencehold"]["hint"] == ""


def test_a_line_stays_one_line_and_short(logged):
    LogSink().fact("event_failed", error="first\n  second", latencies_s=[0.5] * 100, stale_s=[1.0, 2.0])
    (record,) = logged.records
    assert record.getMessage() == 'event_failed error="first second" latencies_s="[100 values]" stale_s="[1.0, 2.0]"'
    assert len(vars(record)["fencehold"]["latencies_s"]) == 100
