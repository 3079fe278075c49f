"""The fault proxy: each verb breaks what it says and nothing else, and nothing is left when it is closed."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest

from fencehold.testing.proxy import Direction, Fault, FaultProxy
from tests.fencehold.testing.line_server import SILENCE_S, Client, broken_network, line_server


async def test_whole_network_forwards_both_ways_and_counts() -> None:
    async with broken_network() as (proxy, _, connect):
        client = await connect()
        assert await client.ask(b"hello") == b"done hello"
        counters = proxy.counters
        assert (counters.bytes_to_server, counters.bytes_to_client, counters.bytes_lost) == (6, 11, 0)
        assert (counters.connections_total, counters.connections_open, counters.connections_refused) == (1, 1, 0)


async def test_large_streams_pass_unchanged() -> None:
    async with broken_network() as (_, _, connect):
        client = await connect()
        for number in range(40):
            line = bytes([97 + number % 26]) * 50_000
            assert await client.ask(line) == b"done " + line


async def test_cut_resets_the_connection_and_refuses_new_ones_until_healed() -> None:
    async with broken_network() as (proxy, _, connect):
        client = await connect()
        await client.ask(b"one")
        proxy.cut()
        assert await client.is_reset()
        with pytest.raises(ConnectionResetError):
            await (await connect()).ask(b"two")
        assert (proxy.counters.connections_open, proxy.counters.connections_refused) == (0, 1)
        proxy.heal()
        assert await (await connect()).ask(b"three") == b"done three"


async def test_close_all_ends_connections_cleanly_and_accepts_new_ones() -> None:
    async with broken_network() as (proxy, _, connect):
        client = await connect()
        await client.ask(b"one")
        proxy.close_all()
        assert await client.answer() == b""
        assert await (await connect()).ask(b"two") == b"done two"


async def test_freeze_keeps_sockets_open_and_silent_and_heal_delivers_what_was_held() -> None:
    async with broken_network() as (proxy, server, connect):
        client = await connect()
        await client.ask(b"one")
        proxy.freeze()
        client.writer.write(b"two\n")
        newcomer = await connect()
        newcomer.writer.write(b"three\n")
        assert await client.hears_nothing()
        assert await newcomer.hears_nothing()
        assert server.executed == [b"one"]
        proxy.heal()
        assert (await client.answer(), await newcomer.answer()) == (b"done two", b"done three")


async def test_a_client_that_leaves_during_a_freeze_is_not_noticed_by_the_server() -> None:
    async with broken_network() as (proxy, _, connect):
        client = await connect()
        await client.ask(b"one")
        proxy.freeze()
        client.writer.close()
        await asyncio.sleep(SILENCE_S)
        assert proxy.counters.connections_open == 1
        proxy.heal()
        await until(lambda: proxy.counters.connections_open == 0)


async def test_delay_holds_each_way_back_and_heal_ends_it() -> None:
    async with broken_network() as (proxy, _, connect):
        client = await connect()
        proxy.delay(0.1)
        started = time.monotonic()
        assert await client.ask(b"slow") == b"done slow"
        assert 0.2 <= time.monotonic() - started < 2
        proxy.delay(60)
        client.writer.write(b"slower\n")
        assert await client.hears_nothing()
        proxy.heal()
        assert await client.answer() == b"done slower"


async def test_drop_answers_lets_the_server_execute_and_heal_resets_the_stream_with_a_hole() -> None:
    async with broken_network() as (proxy, server, connect):
        client, idle = await connect(), await connect()
        await idle.ask(b"idle")
        proxy.drop_answers()
        client.writer.write(b"commit\n")
        await server.has_executed(b"commit")
        assert await client.hears_nothing()
        proxy.heal()
        assert await client.is_reset()
        assert await idle.ask(b"still here") == b"done still here"


async def test_drop_requests_keeps_the_server_from_executing() -> None:
    async with broken_network() as (proxy, server, connect):
        client = await connect()
        proxy.drop_requests()
        client.writer.write(b"commit\n")
        assert await client.hears_nothing()
        assert server.executed == []
        assert proxy.counters.bytes_lost == 7


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_seen_request_is_executed_its_answer_lost_and_the_fault_applied(fault: Fault) -> None:
    async with broken_network() as (proxy, server, connect):
        client = await connect()
        trip = proxy.when_seen(b"COMMIT", fault)
        assert await client.ask(b"begin") == b"done begin"
        assert not trip.tripped
        client.writer.write(b"COMMIT 7\n")
        await trip.wait()
        assert server.executed == [b"begin", b"COMMIT 7"]
        if fault in {Fault.CUT, Fault.RESET_ONE}:
            assert await client.is_reset()
        elif fault is Fault.CLOSE_ALL:
            assert await client.answer() == b""
        else:
            assert await client.hears_nothing()


async def test_a_lost_answer_with_one_reset_lets_others_and_the_retry_through() -> None:
    async with broken_network() as (proxy, _, connect):
        client, other = await connect(), await connect()
        trip = proxy.when_seen(b"acquire", Fault.RESET_ONE)
        client.writer.write(b"acquire\n")
        await trip.wait()
        assert await other.ask(b"read") == b"done read"
        assert await (await connect()).ask(b"acquire") == b"done acquire"


async def test_a_pattern_is_seen_across_chunks_and_only_once() -> None:
    async with broken_network() as (proxy, server, connect):
        client = await connect()
        trips = [proxy.when_seen(b"COMMIT", Fault.RESET_ONE), proxy.when_seen(b"absent", Fault.CUT)]
        client.writer.write(b"x\nCOM")
        await server.has_executed(b"x")
        client.writer.write(b"MIT\n")
        await trips[0].wait()
        assert server.executed == [b"x", b"COMMIT"]
        assert not trips[1].tripped


async def test_bytes_that_passed_before_it_was_set_do_not_trip() -> None:
    async with broken_network() as (proxy, _, connect):
        client = await connect()
        await client.ask(b"COMMIT")
        trip = proxy.when_seen(b"COMMIT", Fault.CUT)
        assert await client.ask(b"other") == b"done other"
        assert not trip.tripped


async def test_a_seen_answer_is_swallowed() -> None:
    async with broken_network() as (proxy, server, connect):
        client = await connect()
        trip = proxy.when_seen(b"done pay", Fault.FREEZE, Direction.TO_CLIENT)
        client.writer.write(b"pay\n")
        await trip.wait()
        assert server.executed == [b"pay"]
        assert await client.hears_nothing()


async def test_without_an_answer_the_fault_comes_after_its_limit() -> None:
    async with broken_network(answer_within_s=0.1) as (proxy, _, connect):
        client = await connect()
        trip = proxy.when_seen(b"never ends", Fault.CUT)
        client.writer.write(b"never ends")
        await trip.wait()
        assert await client.is_reset()


async def test_heal_forgets_what_was_waited_for() -> None:
    async with broken_network() as (proxy, _, connect):
        trip = proxy.when_seen(b"COMMIT", Fault.CUT)
        proxy.heal()
        assert await (await connect()).ask(b"COMMIT") == b"done COMMIT"
        with pytest.raises(TimeoutError):
            await trip.wait(timeout_s=0.01)


@pytest.mark.parametrize("pattern", [b"", b"x" * 5_000])
async def test_a_pattern_that_cannot_be_told_apart_is_refused(pattern: bytes) -> None:
    with pytest.raises(ValueError, match="1 to 4096 bytes"):
        FaultProxy("127.0.0.1", 1).when_seen(pattern, Fault.CUT)


async def test_without_a_server_the_client_is_reset() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    async with FaultProxy("127.0.0.1", port) as proxy:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        assert await Client(reader, writer).is_reset()
        writer.close()


@pytest.mark.parametrize("state", ["whole", "frozen", "unread", "delayed", "waiting"])
async def test_close_leaves_no_task_and_no_socket(state: str) -> None:
    async with line_server() as server:
        tasks_before = asyncio.all_tasks()
        proxy = await FaultProxy("127.0.0.1", server.port).start()
        client = Client(*await asyncio.open_connection(proxy.host, proxy.port))
        await client.ask(b"one")
        if state == "frozen":
            proxy.freeze()
        elif state == "delayed":
            proxy.delay(60)
        elif state == "waiting":
            proxy.when_seen(b"two", Fault.CUT)
            proxy.drop_answers()
        client.writer.write(b"two\n" if state != "unread" else b"y" * 30_000_000)
        await asyncio.sleep(0.02)
        if state == "unread":
            proxy.close_all()
        await asyncio.wait_for(proxy.close(), 5)
        client.writer.transport.abort()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(proxy.host, proxy.port)
        server.end_all()
        await until(lambda: asyncio.all_tasks() <= tasks_before)
        assert proxy.counters.connections_open == 0
