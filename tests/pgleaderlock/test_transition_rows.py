"""Spec 002, table 3.3: one test per numbered row, on a connection that is made of nothing but the lock."""

import asyncio

import pytest

from pgleaderlock import ConnectionError as LostConnection
from pgleaderlock import FixedInterval, LockError, LockState
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.pgleaderlock.fake_server import Scene

UNTIL_STOPPED = ["leader>releasing", "releasing>stopped", "released", "stopped"]


@virtual
async def test_row_01_start_opens_a_connection_and_attempts_at_once() -> None:
    scene = Scene()
    await scene.lock.start()
    assert scene.lock.state in (LockState.FOLLOWER, LockState.ACQUIRING)
    await scene.reach("acquiring>leader")
    assert [kind for kind, _ in scene.server.asked] == ["connect", "lock"]
    await scene.lock.shutdown()
    assert scene.heard[0] == "stopped>follower"


@virtual
async def test_row_02_the_attempt_tries_the_two_keys() -> None:
    scene = Scene()
    await scene.lead()
    assert ("lock", (1, 100)) in scene.server.asked
    await scene.lock.shutdown()


@virtual
async def test_row_03_a_follower_that_is_stopped_closes_its_connection() -> None:
    scene = Scene()
    scene.server.holder = "another"
    await scene.lock.start()
    await scene.reach("acquire_failed")
    scene.heard.clear()
    await scene.lock.shutdown()
    assert scene.heard == ["follower>stopped", "stopped"]
    assert scene.server.open_connections == 0


@virtual
async def test_row_04_a_granted_attempt_leads_and_begins_to_probe() -> None:
    scene = Scene()
    await scene.lock.start()
    await scene.reach("acquired")
    assert scene.heard[-2:] == ["acquiring>leader", "acquired"]
    assert scene.lock.is_leader
    await asyncio.sleep(3.5)
    assert scene.server.count("probe") == 3
    await scene.lock.shutdown()


@virtual
async def test_row_05_a_refused_attempt_waits_its_delay_and_tries_again() -> None:
    scene = Scene(retry_strategy=FixedInterval(7))
    scene.server.holder = "another"
    await scene.lock.start()
    await scene.reach("acquire_failed")
    assert scene.heard == ["stopped>follower", "follower>acquiring", "acquiring>follower", "acquire_failed"]
    await asyncio.sleep(6.9)
    assert scene.server.count("lock") == 1
    await scene.reach("acquire_failed", times=2)
    assert (scene.server.count("lock"), scene.server.count("connect")) == (2, 1)
    await scene.lock.shutdown()


@virtual
async def test_row_06_a_database_error_while_acquiring_reconnects_and_is_told_as_an_error_only() -> None:
    scene = Scene()
    scene.server.broken = {"lock"}
    await scene.lock.start()
    await scene.reach("error")
    assert scene.heard[-2:] == ["acquiring>follower", "error"]
    assert "lost" not in scene.heard  # nothing was held
    assert scene.server.open_connections == 0
    scene.server.broken.clear()
    await scene.reach("acquired")
    assert scene.server.count("connect") == 2
    await scene.lock.shutdown()


@virtual
async def test_row_06_note_1_without_reacquiring_it_stops() -> None:
    scene = Scene(auto_reacquire=False)
    scene.server.broken = {"connect"}
    await scene.lock.start()
    assert (await scene.end())[-3:] == ["acquiring>stopped", "error", "stopped"]
    assert isinstance(scene.errors[0], LostConnection)


@virtual
async def test_row_07_a_stop_during_an_attempt_closes_the_connection() -> None:
    scene = Scene()
    scene.server.hanging = {"lock"}
    await scene.lock.start()
    await scene.reach("follower>acquiring")
    await scene.lock.shutdown()
    assert scene.heard[-2:] == ["acquiring>stopped", "stopped"]
    assert scene.server.open_connections == 0


@virtual
async def test_row_08_a_good_probe_changes_nothing() -> None:
    scene = Scene()
    await scene.lead()
    await asyncio.sleep(10.5)
    assert scene.server.count("probe") == 10
    assert scene.heard == []
    await scene.lock.shutdown()


@virtual
async def test_row_09_a_failed_probe_with_grace_reconnects_and_does_not_lead_meanwhile() -> None:
    scene = Scene(reconnect_grace_s=20)
    await scene.lead()
    scene.server.broken = {"probe", "connect"}
    await scene.reach("leader>reconnecting")
    assert scene.lock.state is LockState.RECONNECTING
    assert not scene.lock.is_leader
    assert scene.server.open_connections == 0
    assert "lost" not in scene.heard
    await scene.lock.shutdown()


@virtual
async def test_row_09_note_3_without_grace_the_loss_is_told_at_once() -> None:
    scene = Scene()
    await scene.lead()
    scene.server.broken = {"probe"}
    await scene.reach("error")
    assert scene.heard[:3] == ["leader>follower", "lost", "error"]
    scene.server.broken.clear()
    await scene.reach("acquired")
    await scene.lock.shutdown()


@virtual
async def test_row_09_notes_1_and_3_without_grace_and_reacquiring_it_stops() -> None:
    scene = Scene(auto_reacquire=False)
    await scene.lead()
    scene.server.hanging = {"probe"}
    assert await scene.end() == ["leader>stopped", "lost", "error", "stopped"]


@virtual
async def test_row_10_a_leader_that_is_stopped_releases_first() -> None:
    scene = Scene()
    await scene.lead()
    await scene.lock.shutdown()
    assert scene.heard == UNTIL_STOPPED
    assert ("unlock", (1, 100)) in scene.server.asked


@virtual
async def test_row_11_stepping_down_releases() -> None:
    scene = Scene()
    await scene.lead()
    await scene.lock.step_down()
    assert scene.server.holder is None
    assert scene.lock.state is LockState.FOLLOWER
    await scene.reach("released")
    assert scene.heard == ["leader>releasing", "releasing>follower", "released"]
    await scene.lock.shutdown()


@virtual
async def test_row_12_leadership_regained_within_the_grace_is_not_told() -> None:
    scene = Scene(reconnect_grace_s=20)
    await scene.lead()
    scene.server.broken = {"probe", "connect"}
    await scene.reach("leader>reconnecting")
    scene.server.broken.clear()
    await scene.reach("reconnecting>leader")
    assert scene.lock.is_leader
    assert scene.heard == ["leader>reconnecting", "error", "reconnecting>leader"]
    await scene.lock.shutdown()


@pytest.mark.parametrize(("again", "target"), [(True, "follower"), (False, "stopped")])
def test_row_13_refused_within_the_grace_is_a_loss(again: bool, target: str) -> None:
    @virtual
    async def run() -> None:
        scene = Scene(reconnect_grace_s=20, auto_reacquire=again)
        await scene.lead()
        scene.server.broken = {"probe"}
        scene.server.holder = "another"
        await scene.reach("lost")
        assert scene.heard[:4] == ["leader>reconnecting", "error", f"reconnecting>{target}", "lost"]
        await scene.lock.shutdown()
        assert scene.heard[-1] == "stopped"

    run()


@pytest.mark.parametrize(("again", "target"), [(True, "follower"), (False, "stopped")])
@pytest.mark.parametrize("fault", ["broken", "hanging"])
def test_row_14_the_end_of_the_grace_is_a_loss(again: bool, target: str, fault: str) -> None:
    @virtual
    async def run() -> None:
        scene = Scene(reconnect_grace_s=20, auto_reacquire=again)
        await scene.lead()
        setattr(scene.server, fault, {"probe", "connect"})
        await scene.reach("leader>reconnecting")
        began_s = asyncio.get_running_loop().time()
        await scene.reach("lost")
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(20, abs=0.1)
        assert scene.heard[:4] == ["leader>reconnecting", "error", f"reconnecting>{target}", "lost"]
        await scene.lock.shutdown()

    run()


@virtual
async def test_row_14_an_attempt_that_locked_unheard_is_undone_by_closing_its_connection() -> None:
    scene = Scene(reconnect_grace_s=3)
    await scene.lead()
    scene.server.broken, scene.server.mute = {"probe"}, {"lock"}
    await scene.reach("lost")
    scene.server.broken, scene.server.mute = set(), set()
    await scene.reach("acquired")
    assert (scene.server.count("connect"), scene.server.open_connections) == (3, 1)
    await scene.lock.shutdown()


@virtual
async def test_row_15_a_stop_within_the_grace() -> None:
    scene = Scene(reconnect_grace_s=20)
    await scene.lead()
    scene.server.broken = {"probe", "connect"}
    await scene.reach("leader>reconnecting")
    await scene.lock.shutdown()
    assert scene.heard == ["leader>reconnecting", "error", "reconnecting>stopped", "stopped"]
    assert scene.server.open_connections == 0


@virtual
async def test_row_16_released_by_a_stop_ends_in_stopped_with_no_connection() -> None:
    scene = Scene()
    await scene.lead()
    await scene.lock.shutdown()
    assert scene.heard[-3:] == ["releasing>stopped", "released", "stopped"]
    assert (scene.lock.state, scene.server.open_connections) == (LockState.STOPPED, 0)


@virtual
async def test_row_16_note_2_after_stepping_down_it_goes_on_unless_told_not_to() -> None:
    scene = Scene()
    await scene.lead()
    await scene.lock.step_down()
    await scene.reach("acquired")  # nobody else wanted it
    await scene.lock.shutdown()
    alone = Scene(auto_reacquire=False)
    await alone.lead()
    await alone.lock.step_down()
    assert alone.lock.state is LockState.STOPPED
    assert await alone.end() == UNTIL_STOPPED


@virtual
async def test_row_17_a_release_that_breaks_stops_and_closes_the_connection() -> None:
    scene = Scene()
    await scene.lead()
    scene.server.broken = {"unlock"}
    await scene.lock.step_down()
    assert await scene.end() == ["leader>releasing", "releasing>stopped", "error", "stopped"]
    assert (scene.server.open_connections, scene.server.holder) == (0, None)


@virtual
async def test_row_17_an_unlock_of_what_was_not_held_is_an_error_too() -> None:
    scene = Scene()
    await scene.lead()
    scene.server.holder = "another"
    await scene.lock.step_down()
    assert await scene.end() == ["leader>releasing", "releasing>stopped", "error", "stopped"]
    assert isinstance(scene.errors[0], LockError)
