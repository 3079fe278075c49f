"""`fencehold doctor` on Cosmos DB: it says what it did not try, once."""

import json

import pytest

import fencehold
from fencehold.cli.app import execute


def checks(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    capsys.readouterr()
    assert execute(("-o", "json", "doctor")) == 0
    found: list[dict[str, str]] = json.loads(capsys.readouterr().out)["checks"]
    return found


def test_doctor_does_not_claim_a_write_that_it_never_tried(
    cosmos_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FENCEHOLD_DSN", cosmos_url)
    assert execute(("init",)) == 0
    found = checks(capsys)
    [writing] = [check for check in found if check["check"] == "writing"]
    assert (writing["state"], writing["detail"].split(":")[0]) == ("skipped", "not tried")
    assert "no transaction" in writing["detail"]


async def test_a_store_in_memory_says_that_no_write_was_tried() -> None:
    """No command takes memory://, but a program may ask its own store."""
    async with fencehold.connect("memory://doctor") as store:
        await store.init()
        assert await store.checkup.try_write() == "the store is in memory"
        assert await store.checkup.conditions() == []
