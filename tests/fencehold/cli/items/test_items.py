"""`fencehold items ...`: what is listed and shown, and that a broken lease is over for its holder."""

import asyncio
import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import fencehold
from tests.fencehold.cli.cli_process import fencehold_run, prepare
from tests.fencehold.cli.outbox_scene import Answer

Cli = Callable[..., Answer]
PUT = (("n-1", "REQUESTED"), ("n-2", "REQUESTED"), ("n-3", "AGREED"))


@pytest.fixture
def url(any_url: str) -> str:
    return with_three(any_url)


@pytest.fixture
def file_url(sqlite_url: str) -> str:
    return with_three(sqlite_url)


def with_three(url: str) -> str:
    prepare(url)
    with_items(url, put_all)
    return url


def with_items(url: str, work: Callable[[fencehold.Items], Awaitable[Any]], **settings: Any) -> Any:
    async def run() -> Any:
        async with fencehold.connect(url) as store:
            return await work(store.items("negotiation", **settings))

    return asyncio.run(run())


async def seen(items: fencehold.Items) -> fencehold.ItemView:
    view = await items.get("n-1")
    assert view is not None
    return view


async def put_all(items: fencehold.Items) -> None:
    for item_id, state in PUT:
        await items.put(item_id, state=state, document={"of": item_id})


def test_ls_shows_items_of_a_state_the_oldest_first_and_who_holds_them(url: str, cli: Cli, cli_text: Cli) -> None:
    async def look(items: fencehold.Items) -> None:
        async with await items.acquire("n-1") as item:
            listed = (await asyncio.to_thread(cli, url, "items", "ls", "--state", "REQUESTED")).json["items"]
            assert [one["id"] for one in listed] == ["n-1", "n-2"]
            assert (listed[0]["holder_id"], listed[0]["token"]) == ("me", item.token)
            assert (listed[1]["holder_id"], listed[1]["kind"]) == (None, "negotiation")
            assert "document" not in listed[0]
            said = await asyncio.to_thread(cli_text, url, "items", "ls", "--kind", "negotiation")
            assert (said.code, "held by me until" in said.out, "free" in said.out) == (0, True, True)

    with_items(url, look, holder_id="me")


def test_ls_of_nothing_says_so(url: str, cli: Cli, cli_text: Cli) -> None:
    assert cli(url, "items", "ls", "--state", "nowhere").json == {"items": []}
    said = cli_text(url, "items", "ls", "--kind", "unheard-of")
    assert (said.code, said.out, "no such items" in said.err) == (0, "", True)


def test_show_has_the_document_and_an_absent_item_is_a_no(url: str, cli: Cli, cli_text: Cli) -> None:
    assert cli(url, "items", "show", "n-3").json["item"]["document"] == {"of": "n-3"}
    said = cli_text(url, "items", "show", "n-3")
    assert (said.code, "AGREED: free" in said.out) == (0, True)
    absent = cli(url, "items", "show", "n-4")
    assert (absent.code, absent.error["code"]) == (1, "no_such_item")


def test_an_id_that_two_kinds_have_needs_its_kind(url: str, cli: Cli) -> None:
    async def another(items: fencehold.Items) -> None:
        async with fencehold.connect(url) as store:
            await store.items("transfer").put("n-1", state="STARTED", document=None)

    with_items(url, another)
    both = cli(url, "items", "show", "n-1")
    assert (both.code, both.error["code"], "negotiation, transfer" in both.error["message"]) == (78, "which_kind", True)
    assert cli(url, "items", "show", "n-1", "--kind", "transfer").json["item"]["state"] == "STARTED"


def test_a_broken_lease_is_over_for_its_holder_and_who_broke_it_is_told(url: str) -> None:
    async def hold(items: fencehold.Items) -> None:
        item = await items.acquire("n-1")
        code, out, err = await asyncio.to_thread(fencehold_run, url, "items", "break", "n-1", "--yes")
        assert (code, "is broken" in out) == (0, True)
        assert "item_lease_broken" in err
        assert "by=" in err
        with pytest.raises(fencehold.LeaseLost):
            await item.save(state="AGREED")
        assert (await seen(items)).state == "REQUESTED"

    with_items(url, hold, holder_id="me")


def test_breaking_asks_first_and_no_means_no(file_url: str) -> None:
    url = file_url

    async def hold(items: fencehold.Items) -> None:
        item = await items.acquire("n-1")
        for word, code in (("n", 1), ("y", 0)):
            assert await asyncio.to_thread(asked, url, word) == code
            assert (await seen(items)).holder_id == ("me" if word == "n" else None)
        with pytest.raises(fencehold.LeaseLost):
            await item.save(state="AGREED")

    with_items(url, hold, holder_id="me")


def asked(url: str, word: str) -> int:
    """On a terminal, with this word for an answer."""
    ours, theirs = pty.openpty()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, ours)
        child = subprocess.Popen(
            [sys.executable, "-m", "fencehold.cli", "items", "break", "n-1"],
            stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "FENCEHOLD_DSN": url},
        )  # fmt: skip
        os.close(theirs)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(ours, 4096)
        os.write(ours, f"{word}\n".encode())
        return child.wait(30)


def test_where_nobody_can_answer_nothing_is_broken_without_yes(file_url: str) -> None:
    async def hold(items: fencehold.Items) -> None:
        async with await items.acquire("n-1") as item:
            code, _, err = await asyncio.to_thread(fencehold_run, file_url, "items", "break", "n-1")
            assert (code, "not_confirmed" in err, "--yes" in err) == (78, True, True)
            await item.save(state="AGREED")

    with_items(file_url, hold, holder_id="me")


def test_breaking_what_nobody_holds_is_done_already(url: str, cli: Cli) -> None:
    assert cli(url, "items", "break", "n-1", "--yes").json["broken"] is False
    absent = cli(url, "items", "break", "n-4", "--yes")
    assert (absent.code, absent.error["code"]) == (1, "no_such_item")


def test_only_the_lease_that_was_seen_is_broken(url: str) -> None:
    async def hold(items: fencehold.Items) -> None:
        await items.acquire("n-1")
        before = await seen(items)
        again = await items.acquire("n-1")
        with pytest.raises(fencehold.AlreadyLeased):
            await items.break_seen(before, by="me")
        await again.save(state="AGREED")

    with_items(url, hold, holder_id="me")
