"""What a command advises can be typed as it stands: it names the outbox, unless that is the default one."""

import psycopg
import pytest

import fencehold
from fencehold.model.errors import ConfigurationError
from tests.fencehold.cli.outbox_scene import Answer, claimed, with_outbox
from tests.servers.roles import Role

ORDERS = {"name": "orders"}


@pytest.fixture
def orders_url(sqlite_url: str, cli) -> str:
    assert cli(sqlite_url, "init", "--outbox", "orders").code == 0
    return sqlite_url


def hint(answer: Answer, check: str) -> str:
    [found] = [one for one in answer.json["checks"] if (one["check"], one["outbox"]) == (check, "orders")]
    return str(found["hint"])


def test_doctor_names_the_outbox_in_what_it_advises(orders_url: str, cli):
    async def reject(outbox: fencehold.Outbox) -> None:
        await outbox.fail(await claimed(outbox, "order.created", "w"), "boom", retry=False)

    with_outbox(orders_url, reject, **ORDERS)
    answer = cli(orders_url, "doctor")
    assert "`fencehold reaper --outbox orders`" in hint(answer, "reaper")
    assert "`fencehold outbox ls --outbox orders --status DEAD_LETTER`" in hint(answer, "dead letters")
    assert "`fencehold outbox redrive --outbox orders`" in hint(answer, "dead letters")


def test_an_event_that_waits_for_a_reaper_names_the_reaper_of_its_outbox(orders_url: str, cli):
    async def lapse(outbox: fencehold.Outbox) -> str:
        return (await claimed(outbox, "order.created", "w", lease_s=0.001)).tracking_id

    tracking_id = with_outbox(orders_url, lapse, **ORDERS)
    why = cli(orders_url, "outbox", "show", tracking_id, "--outbox", "orders").json["event"]["why"]
    assert why.endswith("start one with `fencehold reaper --outbox orders`")


def test_an_event_that_is_not_there_is_looked_for_in_its_outbox(orders_url: str, cli):
    nobody = "0198c5d2-7c1e-7cc3-9d5e-3f2b8a1c4e77"
    error = cli(orders_url, "outbox", "show", nobody, "--outbox", "orders").error
    assert "`fencehold outbox ls --outbox orders`" in error["hint"]


async def test_a_worker_without_a_reaper_names_the_reaper_of_its_outbox(sqlite_url: str):
    async with fencehold.connect(sqlite_url) as store:
        worker = store.outbox("orders").worker(print, reaper=False)
        await store.init()
        with pytest.raises(ConfigurationError, match="no_reaper") as caught:
            await worker.run()
    assert "`fencehold reaper --outbox orders`" in caught.value.hint


@pytest.mark.parametrize("outbox", ["orders", "outbox"])
def test_who_lacks_a_right_on_an_outbox_is_told_which_grants_to_print(postgres_url: str, cli, outbox: str):
    assert cli(postgres_url, "init", "--outbox", outbox, "--items").code == 0
    role = Role(postgres_url, f"clerk_{psycopg.conninfo.conninfo_to_dict(postgres_url)['dbname']}")
    try:
        role.may_use_all_tables()
        role.owner_says(f"REVOKE SELECT ON {outbox} FROM {{}}")
        role.owner_says("REVOKE SELECT ON fencehold_items FROM {}")
        advice = f"`fencehold sql init --outbox {outbox}` prints"
        refused = cli(role.url, "outbox", "ls", "--outbox", outbox).error
        assert (refused["code"], advice in refused["hint"]) == ("no_permission", True)
        assert "`fencehold sql init --items` prints" in cli(role.url, "items", "ls").error["hint"]
        found = [one["hint"] for one in cli(role.url, "doctor").json["checks"] if one["check"] == "rights"]
        assert sorted(found) == sorted([f"GRANT what {advice}.", "GRANT what `fencehold sql init --items` prints."])
    finally:
        role.drop()


async def test_who_lacks_a_right_in_his_own_transaction_is_told_the_same(postgres_url: str):
    async with fencehold.connect(postgres_url) as store:
        store.outbox("orders")
        await store.init()
    role = Role(postgres_url, f"clerk_{psycopg.conninfo.conninfo_to_dict(postgres_url)['dbname']}")
    try:
        role.may_use_all_tables()
        role.owner_says("REVOKE INSERT ON orders FROM {}")
        async with fencehold.connect(role.url) as store:
            with psycopg.connect(role.url) as connection, pytest.raises(ConfigurationError) as caught:
                await store.outbox("orders").add("a", {}, tx=connection)
    finally:
        role.drop()
    assert (caught.value.code, "`fencehold sql init --outbox orders`" in caught.value.hint) == ("no_permission", True)
