"""The window: whatever the phase of the second, the round trip and the drift, the server's clock lies within it."""

import datetime as dt
import random

import pytest

from fencehold.backends.cosmos.items.items import judged as item_judged
from fencehold.backends.cosmos.items.items import of_key
from fencehold.backends.cosmos.leases import judged, request_at
from fencehold.backends.cosmos.server_clock import AGE_S_MAX, DRIFT_PER_S, EPOCH_START, ServerClock, Window
from fencehold.model.election.rules import Lease, TermKey, Verb
from fencehold.model.items import rules as items

START = dt.datetime(2031, 5, 17, 12, 0, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
STEP = dt.timedelta(microseconds=1)
WINDOW = Window(START, START + SECOND)


class Bench:
    """A server and a client whose clocks run at rates of their own, from instants that have nothing in common."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.true_s = 0.0
        self._rates = [1 + draw.uniform(-0.45, 0.45) * DRIFT_PER_S for _ in range(2)]
        self._server_start_s, self._client_start_s = draw.uniform(1e9, 2e9), draw.uniform(0, 1e6)
        self._way_there_s, self.way_back_s = draw.uniform(0, 0.8), draw.uniform(0, 0.8)
        self.age_s = draw.uniform(0, AGE_S_MAX * 0.9)
        self.clock = ServerClock(lambda: self._client_start_s + self.true_s * self._rates[1])

    def server(self) -> dt.datetime:
        return EPOCH_START + dt.timedelta(seconds=self._server_start_s + self.true_s * self._rates[0])

    def write(self) -> None:
        sent_s = self.clock.now_s()
        self.true_s += self._way_there_s
        ts_s = (self.server() - EPOCH_START) // SECOND
        self.true_s += self.way_back_s
        self.clock.note("p", ts_s, sent_s)


@pytest.mark.parametrize("many", [range(n, n + 500) for n in (0, 500, 1000, 1500)], ids=lambda r: f"from {r.start}")
def test_the_servers_clock_is_never_outside_the_window(many: range):
    for seed in many:
        bench = Bench(seed)
        bench.write()
        bench.true_s += bench.age_s
        window = bench.clock.window("p")
        assert window is not None
        assert window.earliest <= bench.server() <= window.latest, f"seed {seed}"


@pytest.mark.parametrize(("in_the_second_s", "rate"), [(0.9999, 1.0009), (0.0, 0.9991)], ids=["fast", "slow"])
def test_the_drift_of_an_old_reading_is_within_it_too(in_the_second_s: float, rate: float):
    now_s = 100.0
    clock = ServerClock(lambda: now_s)
    clock.note("p", 1_000_000_000, now_s)
    now_s += AGE_S_MAX * 0.9
    server = EPOCH_START + dt.timedelta(seconds=1_000_000_000 + in_the_second_s + AGE_S_MAX * 0.9 * rate)
    window = clock.window("p")
    assert window is not None
    assert window.earliest <= server <= window.latest


def test_the_window_is_a_second_and_a_round_trip_wide():
    now_s = 100.0
    clock = ServerClock(lambda: now_s)
    now_s += 0.25
    clock.note("p", 1_000_000_000, 100.0)
    window = clock.window("p")
    assert window is not None
    assert dt.timedelta(seconds=1.25) <= window.width < dt.timedelta(seconds=1.26)


def test_an_old_reading_and_another_partitions_are_none():
    now_s = 100.0
    clock = ServerClock(lambda: now_s)
    assert clock.window("p") is None
    clock.note("p", 1_000_000_000, now_s)
    assert clock.window("another") is None
    now_s += AGE_S_MAX + 0.001
    assert clock.window("p") is None


def stamped(bench: Bench) -> dt.datetime:
    window = bench.clock.window("p")
    assert window is not None
    at = bench.clock.stamp("p", window)
    assert window.earliest <= at <= window.latest
    return at


@pytest.mark.parametrize("seed", range(20))
def test_each_stamp_is_later_than_the_one_before_and_near_the_servers_time_after_some_writes(seed: int):
    """A window alone would go back by up to a second with every new reading."""
    bench, draw = Bench(seed), random.Random(seed)
    before = EPOCH_START
    for _ in range(300):
        bench.write()
        bench.true_s += draw.uniform(0, 0.05)
        at = stamped(bench)
        assert at > before
        before = at
    assert abs(bench.server() - before) < dt.timedelta(seconds=bench.way_back_s + 0.3), "little more than the way back"
    assert stamped(bench) > before, "at the same instant too"


@pytest.mark.fault("server-clock", "items")
def test_stamps_follow_a_server_whose_clock_was_set_back():
    now_s = 100.0
    clock = ServerClock(lambda: now_s)
    clock.note("p", 1_000_003_600, now_s)
    window = clock.window("p")
    assert window is not None
    ahead = clock.stamp("p", window)
    now_s += 1.0
    for ts_s in range(1_000_000_000, 1_000_000_003):
        clock.note("p", ts_s, now_s)
        now_s += 1.0
        window = clock.window("p")
        assert window is not None
        assert ahead - clock.stamp("p", window) > dt.timedelta(minutes=59)
    assert clock.stamp("p", window) < window.latest, "and are no longer held at its end by what was read before"


def lease(expires_at: dt.datetime) -> Lease:
    return Lease("job", "ada", 1, START, START, expires_at, 0.0, nonce="n")


INSIDE = [START + STEP, START + SECOND / 2, START + SECOND]


@pytest.mark.parametrize("expires_at", INSIDE, ids=["just live", "amid", "just lapsed"])
def test_a_lease_that_ends_within_the_window_can_be_neither_taken_nor_kept(expires_at: dt.datetime):
    row, key = lease(expires_at), TermKey("job", "ada", 1, 60.0)
    for verb in (Verb.RENEW, Verb.RELEASE, Verb.ASK_STEP_DOWN):
        assert judged(row, verb, key, "", WINDOW) is None
    for holder, nonce in (("bob", "m"), ("ada", "n"), ("ada", "m")):
        assert judged(row, Verb.ACQUIRE, TermKey("job", holder, 0, 60.0), nonce, WINDOW) is None


def test_outside_of_it_everything_is_as_the_table_says():
    key = TermKey("job", "ada", 1, 60.0)
    live, lapsed = lease(START + SECOND + STEP), lease(START)
    assert judged(live, Verb.RENEW, key, "", WINDOW) is not None
    assert judged(lapsed, Verb.RENEW, key, "", WINDOW) is None
    assert judged(live, Verb.ACQUIRE, TermKey("job", "bob", 0, 60.0), "m", WINDOW) is None
    assert judged(lapsed, Verb.ACQUIRE, TermKey("job", "bob", 0, 60.0), "m", WINDOW) is not None


def test_a_lease_is_counted_from_the_latest_and_ends_before_the_earliest():
    """So it lasts as long as its holder believes, and once given back is nobody's for anybody."""
    key = TermKey("job", "ada", 1, 60.0)
    assert request_at(WINDOW, Verb.ACQUIRE, key, "").now == WINDOW.latest
    assert request_at(WINDOW, Verb.RENEW, key, "").now == WINDOW.latest
    assert request_at(WINDOW, Verb.RELEASE, key, "").now == WINDOW.earliest - 2 * WINDOW.width


@pytest.mark.parametrize("expires_at", INSIDE, ids=["just live", "amid", "just lapsed"])
def test_an_item_whose_lease_ends_within_the_window_is_neither_the_next_ones_nor_its_holders(expires_at: dt.datetime):
    row = items.StoredItem("NEW", START, "{}", 7, "ada", START, 60.0, expires_at)
    ada, bob = of_key(items.ItemKey("i", "ada", 7)), of_key(items.ItemKey("i", "bob", 0), state="NEW")
    for verb in (items.Verb.RENEW, items.Verb.SAVE, items.Verb.DELETE):
        assert item_judged(row, verb, ada, WINDOW) is None
    for verb in (items.Verb.ACQUIRE, items.Verb.NEXT, items.Verb.BREAK, items.Verb.PUT):
        assert item_judged(row, verb, bob, WINDOW) is None


def test_what_is_right_either_way_is_done():
    row = items.StoredItem("NEW", START, "{}", 7, "ada", START, 60.0, START + SECOND / 2)
    ada = of_key(items.ItemKey("i", "ada", 7), state="NEW")
    for verb, effect in (
        (items.Verb.PUT, items.write),
        (items.Verb.ACQUIRE, items.grant),
        (items.Verb.BREAK, items.free),
    ):
        rule = item_judged(row, verb, ada, WINDOW)
        assert rule is not None
        assert rule.then is effect
