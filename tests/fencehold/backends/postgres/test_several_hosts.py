"""A URL that lists several hosts, the first of which says nothing: the second is reached all the same."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fencehold
import fencehold.sync
from fencehold.backends.postgres import blocking, faults, hosts, wire
from fencehold.connect import backend_for
from pgleaderlock import LeaderLock


class Silent:
    """A host that takes connections and never says a word; counts them."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._socket = socket.create_server((host, port), backlog=100)
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


async def test_a_silent_first_host_takes_only_its_share_of_the_time_for_connecting(url: str) -> None:
    backend = backend_for(url)()
    await backend.open(6.0)  # less than libpq gives the first host alone
    await backend.close()


async def test_a_name_that_is_not_resolved_in_time_keeps_nobody_from_the_next_host(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = hosts.addresses

    async def hangs(place: hosts.Place) -> list[hosts.Place]:
        if place[0] == "hangs.invalid":
            await asyncio.Event().wait()
        return await resolve(place)

    monkeypatch.setattr(hosts, "addresses", hangs)
    real = psycopg.conninfo.conninfo_to_dict(postgres_url)
    url = f"postgresql://{real['user']}@hangs.invalid:1,127.0.0.1:{real['port']}/{real['dbname']}"
    backend = backend_for(url)()
    await backend.open(30.0)
    await backend.close()


async def test_a_name_that_is_resolved_late_is_asked_all_the_same(
    postgres_url: str, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve, is_asked = hosts.addresses, asyncio.Event()

    async def late(place: hosts.Place) -> list[hosts.Place]:
        if place[0] == "localhost":
            while not silent.asked():  # noqa: ASYNC110 - a backlog has no event
                await asyncio.sleep(0.01)
            is_asked.set()
        return await resolve(place)

    monkeypatch.setattr(hosts, "addresses", late)
    real = psycopg.conninfo.conninfo_to_dict(postgres_url)
    url = f"postgresql://{real['user']}@localhost:{real['port']},127.0.0.1:{silent.port}/{real['dbname']}"
    backend = backend_for(url)()
    await backend.open(60.0)
    await backend.close()
    assert is_asked.is_set()


def test_of_a_name_with_two_addresses_the_second_is_asked_without_a_loop_too(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = psycopg.conninfo.conninfo_to_dict(postgres_url)
    port, resolve = int(str(real["port"])), socket.getaddrinfo
    silent = Silent("127.0.0.2", port)

    def two(host: Any, *args: Any, **options: Any) -> list[Any]:
        found = ["127.0.0.2", "127.0.0.1"] if host == "db.invalid" else [host]
        return [answer for one in found for answer in resolve(one, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    info = psycopg.conninfo.make_conninfo(f"postgresql://{real['user']}@db.invalid:{port}/{real['dbname']}")
    for asked in (1, 1):  # the second time the one that answered comes first
        blocking.connect(info, 4.0).close()
        assert silent.asked() == asked
    silent.close()


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


@pytest.mark.parametrize("way", ["variables", "port alone", "service"])
async def test_what_the_url_leaves_out_is_taken_from_the_environment(
    postgres_url: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = psycopg.conninfo.conninfo_to_dict(postgres_url)
    host, url = "127.0.0.1", f"postgresql:///{real['dbname']}?user={real['user']}"
    if way == "service":
        (tmp_path / "services").write_text(f"[mine]\nhost={host}\nport={real['port']}\n")
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        url += "&service=mine"
    else:
        monkeypatch.setenv("PGPORT", str(real["port"]))
        monkeypatch.setenv("PGHOST", host if way == "variables" else "no-such-host.invalid")
        url += "" if way == "variables" else f"&host={host}"
    async with fencehold.connect(url, open_timeout=10) as store:
        await store.init()
    with fencehold.sync.connect(url) as blocking_store, blocking_store.leader("x") as leader:
        assert leader.wait_for_leadership(30)
        assert leader.term is not None
        with leader.term.transaction() as tx:
            tx.execute("SELECT 1")


def test_hosts_of_the_environment_are_shared_like_those_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "a,b")
    monkeypatch.setenv("PGPORT", "1,2")
    assert hosts.places("dbname=x") == [("a", "1", ""), ("b", "2", "")]


@pytest.mark.parametrize("named_by", ["url", "variable"])
async def test_a_silent_first_host_of_a_service_does_not_keep_anybody_from_the_second(
    postgres_url: str, silent: Silent, named_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = psycopg.conninfo.conninfo_to_dict(postgres_url)
    lines = f"[two]\n# both\nhost=127.0.0.1,127.0.0.1\nport={silent.port},{real['port']}\nuser={real['user']}\n"
    (tmp_path / "services").write_text(lines)
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    url = f"postgresql:///{real['dbname']}" + ("?service=two" if named_by == "url" else "")
    if named_by == "variable":
        monkeypatch.setenv("PGSERVICE", "two")
    backend = backend_for(url)()
    await backend.open(6.0)
    await backend.close()
    assert silent.asked() > 0


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


async def test_a_host_whose_connect_timeout_is_over_is_asked_last(silent: Silent) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # not listening: it refuses
        ports = [str(silent.port), str(closed.getsockname()[1])]
        places = ",".join(f"127.0.0.1:{port}" for port in ports)
        info = wire.conninfo(f"postgresql://me@{places}/x?connect_timeout=2")
        with pytest.raises(fencehold.Unavailable):
            await wire.connect(info, 20.0, autocommit=True)
    found = hosts.in_order(info, [("127.0.0.1", port, "127.0.0.1") for port in ports])
    assert [place[1] for place in found] == ports[::-1]


async def by_async(info: str) -> None:
    await wire.connect(info, 20.0, autocommit=True)


async def by_blocking(info: str) -> None:
    await asyncio.to_thread(blocking.connect, info, 20.0)


@pytest.mark.parametrize("connect", [by_async, by_blocking])
async def test_one_host_of_two_addresses_that_takes_no_writes_is_not_told_as_a_failover(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, connect: Any
) -> None:
    info = wire.conninfo(f"{postgres_url}?options=-cdefault_transaction_read_only%3Don")

    async def twice(place: hosts.Place) -> list[hosts.Place]:
        return [place, place]

    monkeypatch.setattr(hosts, "addresses", twice)
    monkeypatch.setattr(hosts, "addresses_sync", lambda place: [place, place])
    with pytest.raises(fencehold.Unavailable) as caught:
        await connect(info)
    assert (caught.value.code, caught.value.hint) == ("read_only", faults.READ_ONLY_HINT)
