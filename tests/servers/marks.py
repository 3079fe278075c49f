"""Which real servers a test uses: one mark for each, given by the fixtures, parameters and programs that it asks for.

`pytest -m cluster` and `-m "not postgres"` go by these marks, so they have to be true. A server that is asked for in a
test without its mark is refused with `Unmarked`, which fails the test: mark it by hand where no fixture tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

MARKS = ("postgres", "sqlserver", "cosmos", "pgbouncer", "haproxy", "cluster")

#: Fixtures that start a server, or use one that is given. Whoever asks for one of these needs no line of its own.
OF_FIXTURE = {
    "postgres_server": {"postgres"}, "every_postgres": {"postgres"}, "own_postgres": {"postgres"},
    "shared_pair": {"postgres"}, "pair": {"postgres"}, "faked_server": {"postgres"},
    "needs_postgres": {"postgres"},
    "own_pgbouncer": {"pgbouncer"},
    "mssql_server": {"sqlserver"},
    "cosmos_server": {"cosmos"}, "tls_server": {"cosmos"},
    "cluster_of_the_session": {"cluster", "postgres", "haproxy"},
}  # fmt: skip
#: Parameters by which a fixture or a test chooses among databases while it runs.
OF_PARAMETER = {"postgres": {"postgres"}, "mssql": {"sqlserver"}, "sqlserver": {"sqlserver"}, "cosmos": {"cosmos"}}
#: Programs of `@pytest.mark.needs(...)`.
OF_PROGRAM = {"pgbouncer": {"pgbouncer"}, "haproxy": {"haproxy"}, "etcd": {"cluster", "postgres"}}


class Unmarked(Exception):
    """A test uses a server that its marks do not name."""


class _Running:
    """The test that runs now, and its marks; None outside of a test run, where every server may be started."""

    test = ""
    marks: frozenset[str] | None = None


def of(item: pytest.Item) -> set[str]:
    """The marks that a test should have, by all that can be seen of it before it runs."""
    asked = set(getattr(item, "fixturenames", ()))
    if _may_choose(item):
        values = getattr(getattr(item, "callspec", None), "params", {}).values()
        asked |= {name for value in values if isinstance(value, str) for name in _chosen(item, value)}
    found = {mark for name in asked for mark in {**OF_PARAMETER, **OF_FIXTURE}.get(name, ())}
    programs = {name for marker in item.iter_markers("needs") for name in marker.args}
    return found | {mark for name in programs for mark in OF_PROGRAM.get(name, ())}


def _may_choose(item: pytest.Item) -> bool:
    """The test, or a fixture of ours, has `request`, by which it can ask for a fixture while it runs."""
    fixtures = item.session._fixturemanager
    ours = [
        definition.argnames
        for name in getattr(item, "fixturenames", ())
        for definition in fixtures.getfixturedefs(name, item) or ()
        if not definition.func.__module__.startswith("_pytest.")
    ]
    own = getattr(getattr(item, "_fixtureinfo", None), "argnames", ())
    return any("request" in names for names in (own, *ours))


def _chosen(item: pytest.Item, value: str) -> Iterator[str]:
    """The word itself, and every fixture that `request.getfixturevalue(word)` or `(f"{word}_url")` would ask for."""
    yield value
    fixtures = item.session._fixturemanager
    waiting, seen = [value, f"{value}_url"], set()
    while waiting:
        name = waiting.pop()
        for definition in [] if name in seen else fixtures.getfixturedefs(name, item) or []:
            yield name
            waiting += definition.argnames
        seen.add(name)


def begin(item: pytest.Item) -> None:
    """From here on the servers that this test has no mark for are refused."""
    _Running.test = item.nodeid
    _Running.marks = frozenset(marker.name for marker in item.iter_markers())


def must_have(mark: str) -> None:
    if _Running.marks is not None and mark not in _Running.marks:
        raise Unmarked(f"{_Running.test} uses a server and does not say so: mark it @pytest.mark.{mark}")
