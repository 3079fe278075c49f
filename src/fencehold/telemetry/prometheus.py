"""Turns facts into Prometheus metrics. metrics.py defines the metrics; only this file uses prometheus-client."""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from fencehold.model.errors import ConfigurationError
from fencehold.telemetry.logs import LOGGER
from fencehold.telemetry.metrics import (
    END_OF_A_LOOK,
    FEEDS,
    LAST_OF_A_WORKER,
    LOOK,
    METRICS,
    OF_A_LOOK,
    WORKER,
    Feed,
    Fields,
    Kind,
    Metric,
    Office,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["PrometheusSink"]

#: How many sets of label values we add to one registry. Beyond it (one lease per user, say) new sets are not counted.
LABEL_SETS_MAX = 10_000

Move = Callable[[Fields], None]
Key = tuple[Any, ...]  # the fact, and the fields that may be labels

_BY_FACT = {
    fact: [(metric, feed) for metric, feed in FEEDS if feed.fact == fact] for fact in {f.fact for _, f in FEEDS}
}


class PrometheusSink:
    """Counts every fact that metrics.py names. Never raises, never blocks, works on any thread.

    `registry` None: the registry of the whole process. Several sinks on one registry share its metrics, so each store
    may have a sink of its own.
    """

    wants_latencies = True  # without a sink that wants them they are not computed

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        client = _client()
        self._registry = client.REGISTRY if registry is None else registry
        self._instruments = _instruments(self._registry)
        self._blamed: set[str] = set()

    def fact(self, event: str, **fields: Any) -> None:
        try:
            for move in self._instruments.moves(event, fields):
                move(fields)
            if event in LAST_OF_A_WORKER:
                self._instruments.forget_worker(fields)
            elif event == END_OF_A_LOOK:
                self._instruments.forget_look(fields)
        except Exception as error:  # noqa: BLE001 - a metric must not cost a lease
            if event not in self._blamed:
                self._blamed.add(event)
                LOGGER.error("metrics_failed fact=%s error=%s", event, type(error).__name__)

    def exposition(self) -> tuple[bytes, str]:
        """Return the answer to a GET of /metrics: the text and its content type."""
        client = _client()
        return client.generate_latest(self._registry), str(client.CONTENT_TYPE_LATEST)


class _Instruments:
    """The metrics of one registry. For each fact and its labels it looks up once which series to change, and how."""

    def __init__(self, metrics: Mapping[str, Any]) -> None:
        self._metrics = metrics
        self._moves: dict[Key, tuple[Move, ...]] = {}
        self._label_sets: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
        self._is_full_logged = False
        self._terms = _Terms()

    def moves(self, event: str, fields: Fields) -> tuple[Move, ...]:
        feeds = _BY_FACT.get(event)
        if feeds is None:
            return ()
        said = fields.get
        key = (event, said("outbox"), said("worker_id"), said("lease_name"), said("kind"), said("state"), said("verb"))
        known = self._moves.get(key)
        return known if known is not None else self._look_up(key, feeds, fields)

    def forget_worker(self, fields: Fields) -> None:
        """Remove all series of one worker. If another thread still changes them, that is not shown."""
        values = tuple(str(fields[label]) for label in WORKER)
        for key in [key for key in list(self._moves) if (str(key[1]), str(key[2])) == values]:
            self._moves.pop(key, None)
        self._label_sets.discard((WORKER, values))
        for metric in METRICS:
            if metric.labels == WORKER:
                with contextlib.suppress(KeyError):  # older clients: a series that was never shown
                    self._metrics[metric.name].remove(*values)

    def forget_look(self, fields: Fields) -> None:
        """Remove the counts of the outbox's table, because nobody reads the table any more."""
        outbox = fields["outbox"]
        for key in [key for key in list(self._moves) if key[:2] == (LOOK, outbox)]:
            self._moves.pop(key, None)
        for metric in OF_A_LOOK:
            with contextlib.suppress(KeyError):
                self._metrics[metric.name].remove(str(outbox))

    def _look_up(self, key: Key, feeds: Sequence[tuple[Metric, Feed]], fields: Fields) -> tuple[Move, ...]:
        moves = (self._move(metric, feed, fields) for metric, feed in feeds)
        found = tuple(move for move in moves if move is not None)
        if len(found) == len(feeds):
            self._moves[key] = found
        return found

    def _series(self, metric: Metric, feed: Feed, fields: Fields) -> Any | None:
        """Return the series that this fact changes; None if there are too many label sets already."""
        if not metric.labels:
            return self._metrics[metric.name]
        values = _values(metric, feed, fields)
        if (metric.labels, values) not in self._label_sets:
            if len(self._label_sets) >= LABEL_SETS_MAX:
                self._log_full(metric)
                return None
            self._label_sets.add((metric.labels, values))
            self._open(metric.labels, fields)
        return self._metrics[metric.name].labels(*values)

    def _open(self, labels: tuple[str, ...], fields: Fields) -> None:
        """Create the counters of these labels at 0.

        Prometheus's rate() misses the first step of a counter that begins at 1.
        """
        for metric, feed in FEEDS:
            if metric.labels == labels and metric.kind is not Kind.GAUGE:
                self._metrics[metric.name].labels(*_values(metric, feed, fields))

    def _log_full(self, metric: Metric) -> None:
        if not self._is_full_logged:
            self._is_full_logged = True
            LOGGER.error("metrics_full metric=%s label_sets=%d", metric.name, LABEL_SETS_MAX)

    def _move(self, metric: Metric, feed: Feed, fields: Fields) -> Move | None:
        series = self._series(metric, feed, fields)
        if series is None:
            return None
        if isinstance(feed.takes, Office):
            return self._terms.move(feed.takes, series)
        match metric.kind:
            case Kind.COUNTER:
                return _bound(series.inc, feed)
            case Kind.GAUGE:
                return _bound(series.set, feed)
            case Kind.HISTOGRAM:
                return _bound(_observer(series, metric.buckets), feed)


class _Terms:
    """Computes from epochs whether this process leads.

    A term's end counts even if its fact arrives before that of the term's beginning.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._entered: dict[str, int] = {}
        self._left: dict[str, int] = {}

    def move(self, office: Office, series: Any) -> Move:
        def moved(fields: Fields) -> None:
            name = fields["lease_name"]
            with self._mutex:
                if office is not Office.SOUGHT:
                    epochs = self._entered if office is Office.ENTERED else self._left
                    epochs[name] = max(epochs.get(name, 0), fields["lease_epoch"])
                series.set(1 if self._entered.get(name, 0) > self._left.get(name, 0) else 0)

        return moved


def _values(metric: Metric, feed: Feed, fields: Fields) -> tuple[str, ...]:
    known = {**fields, **feed.given}
    return tuple(str(known[label]) for label in metric.labels)


def _bound(act: Callable[[Any], None], feed: Feed) -> Move:
    takes, when = feed.takes, feed.when

    def move(fields: Fields) -> None:
        if when is None or when(fields):
            act(fields[takes] if isinstance(takes, str) else takes)

    return move


def _observer(series: Any, bounds: tuple[float, ...]) -> Callable[[Any], None]:
    """Return a function that adds one value or many to a histogram.

    A negative value, from two clocks that differ, counts as 0: a sum must not fall.
    """

    def observe(value: float | Iterable[float]) -> None:
        if isinstance(value, Iterable):
            _observe_all(series, bounds, sorted(value))
        else:
            series.observe(max(0.0, value))

    return observe


def _observe_all(series: Any, bounds: tuple[float, ...], ascending: list[float]) -> None:
    """Add each value to a histogram, as observe() does, but faster: 100 sorted values take 10 us, not 2 us each.

    The two fields used here are not public: a test compares the result with that of observe().
    """
    if ascending and ascending[0] < 0:
        ascending = [max(0.0, one) for one in ascending]
    series._sum.inc(sum(ascending))
    below = 0
    for place, bound in enumerate((*bounds, math.inf)):
        up_to = bisect_right(ascending, bound, below)
        if up_to > below:
            series._buckets[place].inc(up_to - below)
            below = up_to


# --- one set of metrics per registry ---

_mutex = threading.Lock()
_by_registry: weakref.WeakKeyDictionary[Any, _Instruments] = weakref.WeakKeyDictionary()


def _instruments(registry: CollectorRegistry) -> _Instruments:
    with _mutex:
        found = _by_registry.get(registry)
        if found is None:
            found = _by_registry[registry] = _Instruments(_registered(registry))
        return found


def _registered(registry: CollectorRegistry) -> dict[str, Any]:
    made: dict[str, Any] = {}
    try:
        for metric in METRICS:
            made[metric.name] = _made(metric, registry)
    except ValueError as error:
        for one in made.values():
            registry.unregister(one)
        raise ConfigurationError(
            f"A metric could not be registered: {error}",
            hint="Another part of the program uses its name: give PrometheusSink a CollectorRegistry of its own.",
            code="metric_name_taken",
        ) from None
    return made


def _made(metric: Metric, registry: CollectorRegistry) -> Any:
    client = _client()
    named = {"name": metric.name, "documentation": metric.meaning, "labelnames": metric.labels, "registry": registry}
    made = {
        Kind.COUNTER: client.Counter,
        Kind.GAUGE: partial(client.Gauge, multiprocess_mode=metric.multiprocess),
        Kind.HISTOGRAM: partial(client.Histogram, buckets=metric.buckets),
    }
    return made[metric.kind](**named)


def _client() -> Any:
    try:
        import prometheus_client
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise ConfigurationError(
            "The package prometheus-client is not installed.",
            hint="pip install 'fencehold[prometheus]'",
            code="no_driver",
        ) from None
    return cast("Any", prometheus_client)
