"""The virtual loop: time jumps, order comes from the seed, the same seed repeats itself in another process."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import threading
import time

import pytest

from fencehold.testing.simulation.virtual_loop import Deadlock, Livelock, VirtualLoop, run

SCHEDULES = 500
EVENTS_PER_SCHEDULE = 300
SECONDS_PER_EVENT_MAX = 60 / (10_000 * EVENTS_PER_SCHEDULE)


async def busy_trace() -> str:
    """Some 460 events: sleepers, timeouts, a lock, an executor, and a failing group that cancels a set of children."""
    loop = asyncio.get_running_loop()
    seen = hashlib.sha256()
    lock = asyncio.Lock()

    def note(what: str) -> None:
        task = asyncio.current_task()
        seen.update(f"{loop.time():.6f} {task.get_name() if task else ''} {what}\n".encode())

    async def actor(number: int) -> None:
        try:
            for turn in range(6):
                await asyncio.sleep((number * 7 + turn) % 5 / 10)
                async with lock:
                    note(f"{number} holds")
                    await asyncio.to_thread(note, f"{number} in executor")
                try:
                    await asyncio.wait_for(asyncio.sleep(turn / 10), 0.25)
                except TimeoutError:
                    note(f"{number} timed out")
            if number == 3:
                raise ValueError("the group must cancel the others")
            await asyncio.Event().wait()
        finally:
            note(f"{number} ends")

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(actor(number))
    except* ValueError:
        note("group failed")
    return seen.hexdigest()


def test_a_day_of_sleep_takes_no_real_time() -> None:
    async def sleeper() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    started = time.perf_counter()
    assert run(sleeper, seed=1) == 86_400
    assert time.perf_counter() - started < 1


def test_the_same_seed_gives_the_same_trace() -> None:
    assert [run(busy_trace, seed) for seed in range(20)] == [run(busy_trace, seed) for seed in range(20)]


def test_different_seeds_give_different_traces() -> None:
    assert len({run(busy_trace, seed) for seed in range(20)}) == 20


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_the_same_seed_gives_the_same_trace_in_another_process(hash_seed: str) -> None:
    here = [run(busy_trace, seed) for seed in range(10)]
    # Memory laid out otherwise, so that an order by address would show.
    program = (
        "padding = [object() for _ in range(int(__import__('os').environ['PYTHONHASHSEED']) * 7)]\n"
        "import test_virtual_loop as t\n"
        "print(*[t.run(t.busy_trace, seed) for seed in range(10)])"
    )
    there = subprocess.run(
        [sys.executable, "-c", program],
        cwd=os.path.dirname(__file__),
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert there.stdout.split() == here


def order_of_three(seed: int | None) -> list[int]:
    order: list[int] = []

    async def three() -> None:
        for number in range(3):
            asyncio.get_running_loop().call_soon(order.append, number)
        await asyncio.sleep(1)

    run(three, seed)
    return order


def test_every_order_of_ready_callbacks_is_tried_by_some_seed() -> None:
    assert len({tuple(order_of_three(seed)) for seed in range(100)}) == 6


def test_without_a_seed_the_order_is_first_in_first_out() -> None:
    assert order_of_three(None) == [0, 1, 2]


def test_waiting_for_what_cannot_happen_is_a_deadlock_that_names_the_waiter() -> None:
    async def stuck() -> None:
        await asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="the-waiter")

    with pytest.raises(Deadlock, match="the-waiter"):
        run(stuck, seed=1)


def test_spinning_without_time_passing_is_a_livelock() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - spinning is the fault under test
            await asyncio.sleep(0)

    loop = VirtualLoop(1, callbacks_per_instant_max=500)
    task = loop.create_task(spin())
    with pytest.raises(Livelock, match="500"):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_leftover_tasks_are_ended_in_the_order_of_their_creation() -> None:
    ended: list[int] = []

    async def child(number: int) -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.append(number)

    async def parent() -> None:
        kept = [asyncio.get_running_loop().create_task(child(number)) for number in range(5)]
        await asyncio.sleep(1)
        assert len(kept) == 5

    run(parent, seed=None)
    assert ended == [0, 1, 2, 3, 4]


def test_executor_work_runs_on_the_loops_own_thread_and_its_error_comes_back() -> None:
    def refuse() -> None:
        raise KeyError("inside")

    async def work() -> int:
        with pytest.raises(KeyError, match="inside"):
            await asyncio.to_thread(refuse)
        return await asyncio.to_thread(threading.get_ident)

    assert run(work, seed=1) == threading.get_ident()


def test_another_thread_may_not_call_in() -> None:
    async def invite() -> list[str]:
        loop, errors = asyncio.get_running_loop(), list[str]()

        def intrude() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        return errors

    assert "no seed" in run(invite, seed=1)[0]


def test_cancelled_timers_do_not_pile_up() -> None:
    async def many_timeouts() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        for _ in range(2_000):
            async with asyncio.timeout(3_600):
                await asyncio.sleep(0.001)
        return len(loop._timers)

    assert run(many_timeouts, seed=1) < 200


def test_ten_thousand_schedules_of_300_events_fit_in_a_minute() -> None:
    counting = VirtualLoop(0)
    counting.run_until_complete(busy_trace())
    counting.close()
    assert counting.callbacks_run >= EVENTS_PER_SCHEDULE
    started = time.process_time()
    for seed in range(SCHEDULES):
        run(busy_trace, seed)
    spent_s = time.process_time() - started
    assert spent_s / (SCHEDULES * counting.callbacks_run) < SECONDS_PER_EVENT_MAX


def test_an_error_in_the_program_is_the_error_that_is_raised() -> None:
    async def fail() -> None:
        kept = asyncio.get_running_loop().create_task(asyncio.Event().wait())
        await asyncio.sleep(1)
        raise ValueError(f"mine, with {kept.get_name()} left behind")

    with pytest.raises(ValueError, match="mine"):
        run(fail, seed=1)
