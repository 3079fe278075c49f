"""Callbacks: registered by decorator, told in order, and never able to harm the lock. And the public names."""

import asyncio
import logging
from typing import Any

import pytest

import pgleaderlock
from pgleaderlock import FixedInterval, LeaderLock, LockState, models
from pgleaderlock._logging import get_logger
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.pgleaderlock.fake_server import Scene

NAMES = (
    "LeaderLock LockState RetryContext RetryStrategy ExponentialBackoff FixedInterval DecorrelatedJitter Callback "
    "StateChangeCallback ErrorCallback PgLeaderLockError ConnectionError LockError ShutdownError"
)
EVENTS = ("acquired", "released", "lost", "acquire_failed", "state_change", "error", "stopped")


@virtual
async def test_several_callbacks_sync_and_async_are_told_in_the_order_of_registration() -> None:
    scene = Scene()
    told: list[str] = []

    @scene.lock.on_acquired
    def first() -> None:
        told.append("first")

    @scene.lock.on_acquired
    async def second() -> None:
        await asyncio.sleep(1)
        told.append("second")

    scene.lock.on_acquired(lambda: told.append("third"))
    scene.lock.on_released(lambda: told.append("released"))
    await scene.lead()
    await scene.lock.shutdown()
    assert told == ["first", "second", "third", "released"]


@pytest.mark.fault("callbacks", "lock")
@virtual
async def test_a_callback_that_raises_goes_to_on_error_and_no_further() -> None:
    scene = Scene()

    @scene.lock.on_acquired
    async def broken() -> None:
        raise ValueError("mine")

    @scene.lock.on_error
    def also_broken(error: Exception) -> None:
        raise ZeroDivisionError

    await scene.lead()
    await asyncio.sleep(5)
    assert scene.lock.is_leader
    assert [str(error) for error in scene.errors] == ["mine"]
    await scene.lock.shutdown()
    assert scene.heard[-1] == "stopped"


@pytest.mark.fault("callbacks", "lock")
@virtual
async def test_a_callback_that_hangs_stops_no_probe_and_is_cut_off() -> None:
    scene = Scene()
    hung = asyncio.Event()

    @scene.lock.on_acquired
    async def hangs() -> None:
        hung.set()
        await asyncio.Event().wait()

    await scene.lock.start()
    await hung.wait()
    before = scene.server.count("probe")
    await asyncio.sleep(5)
    assert scene.server.count("probe") >= before + 4
    await scene.reach("error")
    assert isinstance(scene.errors[0], TimeoutError)
    assert scene.lock.is_leader
    await scene.lock.shutdown()


@virtual
async def test_a_callback_may_shut_the_lock_down() -> None:
    scene = Scene()
    ended = asyncio.Event()

    @scene.lock.on_lost
    async def give_up() -> None:
        await scene.lock.shutdown()
        ended.set()

    await scene.lead()
    scene.server.broken = {"probe", "connect"}
    await ended.wait()
    await scene.reach("stopped")
    assert scene.lock.state is LockState.STOPPED


@virtual
async def test_a_callback_may_start_the_lock_again() -> None:
    scene = Scene(auto_reacquire=False)
    again: list[str] = []

    @scene.lock.on_stopped
    async def once_more() -> None:
        if not again:
            again.append("started")
            await scene.lock.start()

    await scene.lead()
    scene.server.broken = {"probe"}
    await scene.reach("stopped")
    scene.server.broken.clear()
    await scene.reach("acquired")
    assert scene.lock.is_leader
    await scene.lock.shutdown()


@pytest.mark.parametrize("event", EVENTS)
def test_registration_returns_the_function_unchanged(event: str) -> None:
    def mine(*args: object) -> None: ...

    assert getattr(LeaderLock("", 1, 2), f"on_{event}")(mine) is mine


def test_the_public_names_are_the_specs() -> None:
    assert set(pgleaderlock.__all__) == set(NAMES.split())
    assert {state.value for state in LockState} == {
        "stopped", "follower", "acquiring", "leader", "reconnecting", "releasing",
    }  # fmt: skip
    errors = (pgleaderlock.ConnectionError, pgleaderlock.LockError, pgleaderlock.ShutdownError)
    assert all(issubclass(error, pgleaderlock.PgLeaderLockError) for error in errors)


@pytest.mark.parametrize("keys", [(2**31, 1), (1, -(2**31) - 1), (1.5, 1), ("1", 1), (True, 1)])
def test_a_key_that_is_no_32_bit_integer_is_refused(keys: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match="32-bit"):
        LeaderLock("", *keys)


def test_the_ends_of_the_range_are_keys() -> None:
    lock = LeaderLock("", 2**31 - 1, -(2**31))
    assert (lock.key1, lock.key2, lock.state, lock.is_leader) == (2**31 - 1, -(2**31), LockState.STOPPED, False)


@pytest.mark.parametrize("setting", ["health_interval_s", "reconnect_grace_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_duration_that_cannot_be_is_refused(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=setting):
        LeaderLock("", 1, 2, **{setting: value})  # type: ignore[arg-type]


def test_keys_from_a_name_are_the_same_in_every_release() -> None:
    lock = LeaderLock.for_name("", "billing", health_interval_s=2.0)
    assert (lock.key1, lock.key2) == (1754648071, 534150811)
    assert (lock.key1, lock.key2) != (LeaderLock.for_name("", "Billing").key1, lock.key2)


def test_its_text_shows_no_password() -> None:
    assert "geheim" not in repr(LeaderLock("postgresql://me:geheim@db/x", 1, 2))


def test_the_models_hold_what_a_retry_strategy_is_asked_with() -> None:
    assert models.RetryContext is pgleaderlock.RetryContext
    assert models.RetryContext(attempt=1, elapsed_s=0.5).last_error is None


@pytest.mark.parametrize(
    "strategy", [pgleaderlock.ExponentialBackoff(), FixedInterval(), pgleaderlock.DecorrelatedJitter()]
)
def test_a_retry_strategy_is_known_by_its_method(strategy: object) -> None:
    assert isinstance(strategy, pgleaderlock.RetryStrategy)
    assert not isinstance(object(), pgleaderlock.RetryStrategy)


def test_the_logger_has_a_method_per_level(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("pgleaderlock").bind(key1=1)
    with caplog.at_level(logging.DEBUG, "pgleaderlock"):
        for level in ("debug", "info", "warning", "error"):
            getattr(log, level)("state_change", to="leader")
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO", "WARNING", "ERROR"]
    assert {record.getMessage() for record in caplog.records} == {"state_change to=leader key1=1"}


def test_a_logged_exception_shows_its_traceback_and_no_password(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("cannot read postgresql://me:geheim@db/x")
    except ValueError:
        get_logger("pgleaderlock").exception("callback_failed", key1=1)
    [record] = caplog.records
    assert record.getMessage().startswith("callback_failed key1=1\nTraceback")
    assert "ValueError" in caplog.text
    assert "geheim" not in caplog.text


def test_log_lines_carry_their_context(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pgleaderlock"):
        get_logger("pgleaderlock").bind(key1=1, key2=2).fact("health_check_failed", error="connection closed")
    assert caplog.records[0].getMessage() == 'health_check_failed error="connection closed" key1=1 key2=2'
    assert caplog.records[0].levelno == logging.WARNING
