"""Where the library reports each thing that happened, once; telemetry passes it to logs, metrics and callers' sinks.

Each fact is declared in fact_table.py, as a method of what it is about: the method's name is the fact's name, its
keyword arguments are the fact's fields.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, runtime_checkable


class FactSink(Protocol):
    def fact(self, event: str, **fields: Any) -> None:
        """Report one fact. Never raises and never blocks: a broken sink must not cost a lease."""
        ...


@runtime_checkable
class MetricsSink(FactSink, Protocol):
    """A sink that may also ask for facts that cost something to find out, with `wants_latencies` True.

    They are the latency of each event, and the counts of a table.
    """

    wants_latencies: bool


def wants_latencies(sink: FactSink) -> bool:
    return isinstance(sink, MetricsSink) and bool(sink.wants_latencies)


class Facts:
    """Reports facts about one thing to a sink.

    `about`: fields that are added to all of them, such as the thing's name.
    """

    def __init__(self, sink: FactSink, **about: Any) -> None:
        self.sink = sink
        self._about = about

    def about(self) -> Mapping[str, Any]:
        return self._about

    @property
    def wants_latencies(self) -> bool:
        return wants_latencies(self.sink)


P = ParamSpec("P")
F = TypeVar("F", bound=Facts)
Declared = Callable[Concatenate[F, P], None]

#: The level of each fact in the log, by name. What a fact says may change its level: telemetry/logs.py.
LEVELS: dict[str, int] = {}


def at(level: int, *, may_be_about: tuple[str, ...] = ()) -> Callable[[Declared[F, P]], Declared[F, P]]:
    """Return a decorator: a method declared with it reports a fact that has the method's name and level `level`.

    The method's arguments are the fact's fields. A fact always has the same fields: an argument that is not given has
    its default. A name in `may_be_about` is a field that only some things have; for others it is None.
    """

    def declare(method: Declared[F, P]) -> Declared[F, P]:
        name = method.__name__
        parameters = inspect.signature(method).parameters.values()
        defaults = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}
        unless_known = dict.fromkeys(may_be_about)
        LEVELS[name] = level

        def report(self: F, /, *args: P.args, **fields: P.kwargs) -> None:
            self.sink.fact(name, **{**unless_known, **self.about(), **defaults, **fields})

        functools.update_wrapper(report, method)
        return report

    return declare
