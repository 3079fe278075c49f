"""A URL that lists several hosts, the first of which says nothing: the second is reached all the same."""

import socket
from collections.abc import Iterator

import psycopg
import pytest

import fencehold
import fencehold.sync
from fencehold.backends.postgres import hosts
from pgleaderlock import LeaderLock


class Silent:
    """A host that takes connections and never says a word; counts them."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]
        self._taken: list[socket.socket] = []

    def asked(self) -> int:
        """How many have connected so far."""
        while True:
            try:
                self._taken.append(self._socket.accept()[0])
            except BlockingIOError:
                return len(self._taken)

    def close(self) -> None:
        self.asked()
        for one in (self._socket, *self._taken):
            one.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    host = Silent()
    yield host
    host.close()


@pytest.fixture
def url(postgres_url: str, silent: Silent) -> str:
    info = psycopg.conninfo.conninfo_to_dict(postgres_url)
    return f"postgresql://{info['user']}@127.0.0.1:{silent.port},127.0.0.1:{info['port']}/{info['dbname']}"


async def test_a_silent_first_host_does_not_keep_a_leader_from_the_second(url: str, silent: Silent) -> None:
    async with fencehold.connect(url) as store:
        await store.init()
        async with store.leader("x", lease="3s") as leader:
            assert await leader.wait_for_leadership(30)
            assert leader.term is not None
            async with leader.term.transaction() as tx:
                await tx.execute("CREATE TABLE t (a int)")
    assert silent.asked() > 0


async def test_the_host_that_answered_last_is_asked_first(url: str, silent: Silent) -> None:
    async with fencehold.connect(url) as store:
        await store.init()
        once = silent.asked()
        async with fencehold.connect(url) as other, other.leader("x") as leader:
            assert await leader.wait_for_leadership(30)
            assert leader.term is not None
            async with leader.term.transaction() as tx:
                await tx.execute("SELECT 1")
            await store.outbox().add("a", 1)
        assert silent.asked() == once


def test_a_silent_first_host_does_not_keep_a_program_without_a_loop_from_the_second(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fencehold.sync.connect(url) as store:
        store.init()
        with store.leader("x", lease="30s") as leader:
            assert leader.wait_for_leadership(30)
            assert leader.term is not None
            monkeypatch.setattr(hosts, "_answered_last", {})
            with leader.term.transaction() as tx:
                tx.execute("CREATE TABLE t (a int)")


async def test_a_silent_first_host_does_not_keep_an_advisory_lock_from_the_second(url: str) -> None:
    lock = LeaderLock(url, 1, 2)
    async with lock:
        assert await lock.wait_for_leadership(30)


async def test_a_host_that_refuses_is_passed_over_at_once(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "head_start_s", lambda limit_s, count: 3600.0)
    real = psycopg.conninfo.conninfo_to_dict(postgres_url)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    url = f"postgresql://{real['user']}@127.0.0.1:{closed},127.0.0.1:{real['port']}/{real['dbname']}"
    async with fencehold.connect(url) as store:
        await store.init()


async def test_every_host_that_cannot_be_used_is_named(silent: Silent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    url = f"postgresql://me@no-such-host.invalid:1,127.0.0.1:{closed},127.0.0.1:{silent.port}/db"
    with pytest.raises(fencehold.Unavailable) as caught:
        await fencehold.connect(url).open(timeout_s=5)
    assert f"port {closed}" in caught.value.message
    assert "no-such-host.invalid" in caught.value.message


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("host=a,b port=1", [("a", "1", ""), ("b", "1", "")]),
        ("host=a,b port=1,2", [("a", "1", ""), ("b", "2", "")]),
        ("hostaddr=1.2.3.4,1.2.3.5", [("", "", "1.2.3.4"), ("", "", "1.2.3.5")]),
        ("host=a,b hostaddr=1.2.3.4,1.2.3.5 port=1", [("a", "1", "1.2.3.4"), ("b", "1", "1.2.3.5")]),
        ("dbname=x", [("", "", "")]),
    ],
)
def test_a_list_of_hosts_is_read_as_libpq_reads_it(given: str, found: list[tuple[str, ...]]) -> None:
    assert hosts.places(given) == found


@pytest.mark.parametrize("ports", ["1,2,3", "1,2"])
def test_a_list_of_hosts_and_ports_that_do_not_fit_is_refused_before_anything_is_sent(ports: str) -> None:
    with pytest.raises(fencehold.ConfigurationError) as caught:
        fencehold.connect(f"postgresql://me@/db?host=a,b,c,d&port={ports}")
    assert caught.value.code == "bad_url"
