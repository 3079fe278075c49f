"""The fencing epoch beside the lock, on virtual time: kept within the grace, and on lease tables that are too old."""

import pytest

from fencehold.model.election.lock_errors import HopelessError
from fencehold.model.errors import ConfigurationError
from mssqlleaderlock.companion import Companion
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.mssqlleaderlock.fake_session import Scene


def fenced(**options: object) -> Scene:
    return Scene(fencing_name="job", **options)


async def interrupted(scene: Scene) -> None:
    """The leader's session breaks, and a new one can be had."""
    scene.server.broken = {"probe"}
    await scene.reach("leader>reconnecting")
    scene.server.broken = set()


@virtual
async def test_regained_within_the_grace_the_term_goes_on_under_its_epoch_and_nothing_is_told() -> None:
    scene = fenced(reconnect_grace_s=20)
    await scene.lead()
    term = scene.lock.term
    assert term is not None
    await interrupted(scene)
    assert not term.is_valid
    await scene.reach("reconnecting>leader")
    assert not {"lost", "acquired"} & set(scene.heard)
    assert (scene.lock.lease.epoch, term.epoch, term.is_valid) == (1, 1, True)
    assert scene.lock.lease.asked.count("seize") == 1
    await scene.lock.shutdown()


@pytest.mark.parametrize("fate", ["lapsed", "raised by another"])
def test_an_epoch_that_cannot_be_kept_within_the_grace_is_a_loss_and_a_new_term(fate: str) -> None:
    @virtual
    async def run() -> None:
        scene = fenced(reconnect_grace_s=20)
        await scene.lead()
        first = scene.lock.term
        assert first is not None
        scene.lock.lease.is_live = fate != "lapsed"
        scene.lock.lease.epoch += fate == "raised by another"
        await interrupted(scene)
        await scene.reach("acquired")
        assert [told for told in scene.heard if told in ("lost", "acquired")] == ["lost", "acquired"]
        assert scene.lock.term is not None
        assert (scene.lock.term.epoch, first.is_valid) == (scene.lock.lease.epoch, False)
        assert scene.lock.term.epoch > first.epoch
        await scene.lock.shutdown()

    run()


def old_tables() -> ConfigurationError:
    return ConfigurationError("A column is missing.", hint="Run `fencehold init`.", code="schema_old")


@virtual
async def test_on_an_old_lease_table_the_lock_runs_init_once_and_leads() -> None:
    scene = fenced()
    scene.lock.lease.refusals = [old_tables()]
    made: list[float] = []

    async def init(limit_s: float) -> None:
        made.append(limit_s)

    assert isinstance(scene.lock._companion, Companion)
    scene.lock._companion._schema.init = init  # type: ignore[method-assign, assignment]
    await scene.lead()
    assert len(made) == 1
    assert scene.errors == []
    await scene.lock.shutdown()


@virtual
async def test_a_lock_whose_user_may_not_change_an_old_lease_table_stops_and_says_who_must() -> None:
    scene = fenced()
    scene.lock.lease.refusals = [old_tables()]

    async def init(limit_s: float) -> None:
        raise ConfigurationError("SQL Server refused.", hint="Let the owner run it.", code="no_permission")

    assert isinstance(scene.lock._companion, Companion)
    scene.lock._companion._schema.init = init  # type: ignore[method-assign, assignment]
    await scene.lock.start()
    assert await scene.lock.wait_for_leadership(60) is False
    assert [type(error) for error in scene.errors] == [HopelessError]
    assert "Let the owner run it." in str(scene.errors[0])
    assert scene.open_sessions == 0
