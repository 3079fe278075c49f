"""Where a SQLite file lies: a disk that is full, a file system that other machines share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import fencehold
from fencehold.backends.sqlite import file_system
from tests.conftest import not_run
from tests.outbox.scene import Heard
from tests.servers.programs import Missing
from tests.servers.small_disk import SmallDisk, small_disk


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    try:
        with small_disk(tmp_path / "disk") as disk:
            yield disk
    except Missing as missing:
        not_run(request.config, missing)


async def test_a_full_disk_ends_a_term_by_its_deadline_and_loses_nothing(disk: SmallDisk) -> None:
    heard = Heard()
    async with fencehold.connect(f"sqlite:///{disk.folder}/app.db", facts=heard) as store:
        await store.init()
        async with store.leader("x", lease="1s", acquire_every="100ms") as leader:
            assert await leader.wait_for_leadership(30)
            disk.fill()
            failed = await heard.once("leader_renew_failed")
            assert "[disk_full]" in failed["sql_error"]
            await heard.once("leader_lost", lease_epoch=1)
            await heard.once("store_unreachable", code="disk_full")
            disk.make_room()
            assert await leader.wait_for_leadership(30)
            assert leader.term is not None
            assert leader.term.epoch == 2


async def test_a_disk_that_has_room_again_within_the_lease_costs_no_term(disk: SmallDisk) -> None:
    heard = Heard()
    async with fencehold.connect(f"sqlite:///{disk.folder}/app.db", facts=heard) as store:
        await store.init()
        async with store.leader("x", lease="12s", renew_every="200ms") as leader:
            assert await leader.wait_for_leadership(30)
            disk.fill()
            await heard.once("leader_renew_failed")
            disk.make_room()
            seen = len(heard.all("leader_renewed"))
            await heard.once("leader_renewed", times=seen + 1, lease_epoch=1)
            assert heard.all("leader_lost") == []


async def test_a_file_on_a_file_system_that_machines_share_is_refused(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mount is real; that its kind is one of a network is played."""
    monkeypatch.setattr(file_system, "SHARED", frozenset({"tmpfs"}))
    url = f"sqlite:///{disk.folder}/app.db"
    with pytest.raises(fencehold.ConfigurationError) as caught:
        await fencehold.connect(url).open()
    assert caught.value.code == "shared_file_system"
    assert "tmpfs" in caught.value.message
    assert list(disk.folder.iterdir()) == []
    heard = Heard()
    async with fencehold.connect(f"{url}?file_system=any", facts=heard) as store:
        assert await store.init()
    assert "tmpfs" in (await heard.once("file_system_doubtful"))["detail"]


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:40 / /mnt rw shared:2 - tmpfs none rw
41 40 0:41 / /mnt/nas rw,relatime shared:3 - nfs4 nas:/export rw,vers=4.2
42 22 0:42 / /mnt/with\\040blank rw - cifs //nas/share rw
43 22 0:43 / /data rw - 9p drvfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/app.db", "ext4"),
        ("/mnt/app.db", "tmpfs"),
        ("/mnt/nas/app.db", "nfs4"),
        ("/mnt/nas/deep/down/app.db", "nfs4"),
        ("/mnt/nasty/app.db", "tmpfs"),
        ("/mnt/with blank/app.db", "cifs"),
        ("/data/app.db", "9p"),
    ],
)
def test_the_kind_is_that_of_the_innermost_mount(path: str, kind: str) -> None:
    assert file_system.kind_among(MOUNTS, Path(path)) == kind


@pytest.mark.parametrize("query", ["file_system=other", "mode=ro", "file_system"])
def test_no_other_parameter_is_taken(query: str) -> None:
    with pytest.raises(fencehold.ConfigurationError) as caught:
        fencehold.connect(f"sqlite:///app.db?{query}")
    assert caught.value.code == "bad_url"
