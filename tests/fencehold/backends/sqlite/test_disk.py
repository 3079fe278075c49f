"""Where a SQLite file lies: a disk that is full, a file system that other machines share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import fencehold
from fencehold.backends.sqlite.file import system as file_system
from tests.conftest import not_here, not_run
from tests.fencehold.runtime.outbox.scene import Heard
from tests.servers.automount import automounted
from tests.servers.programs import Missing
from tests.servers.small_disk import SmallDisk, small_disk


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    try:
        with small_disk(tmp_path / "disk") as disk:
            yield disk
    except Missing as missing:
        not_run(request.config, missing)


@pytest.mark.fault("disk-full", "leader")
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


@pytest.fixture
def not_mounted_yet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    try:
        with automounted(tmp_path / "nas") as folder:
            yield folder
    except Missing as missing:
        not_here(request.config, missing)


async def test_a_file_system_that_is_mounted_at_the_first_touch_is_judged_by_what_is_mounted(
    not_mounted_yet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "SHARED", frozenset({"tmpfs"}))
    with pytest.raises(fencehold.ConfigurationError) as caught:
        await fencehold.connect(f"sqlite:///{not_mounted_yet}/app.db").open()
    assert caught.value.code == "shared_file_system"


def test_a_file_that_is_a_link_into_such_a_file_system_is_judged_by_where_it_leads(not_mounted_yet: Path) -> None:
    link = not_mounted_yet.with_name("app.db")
    link.symlink_to(not_mounted_yet / "app.db")
    assert file_system.kind_of(str(link)) == "tmpfs"


def test_a_folder_that_is_not_there_is_of_the_kind_of_the_place_where_it_would_be_made(disk: SmallDisk) -> None:
    assert file_system.kind_of(str(disk.folder / "not" / "there" / "app.db")) == "tmpfs"


BUCKETS = ["fuse.gcsfuse", "fuse.blobfuse2", "fuse.juicefs", "fuse.mountpoint-s3"]


@pytest.mark.parametrize("kind", ["nfs4", "cifs", *BUCKETS])
def test_a_file_system_of_a_network_or_of_a_bucket_is_one_that_machines_share(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 8:1 / / rw,relatime shared:1 - {kind} remote rw\n")
    monkeypatch.setattr(file_system, "MOUNTS", mounts)
    with pytest.raises(fencehold.ConfigurationError) as caught:
        file_system.check(str(tmp_path / "app.db"))
    assert (caught.value.code, kind in caught.value.message) == ("shared_file_system", True)


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:40 / /mnt rw shared:2 - tmpfs  rw
41 40 0:41 / /mnt/nas rw,relatime shared:3 - nfs4 nas:/export rw,vers=4.2
42 22 0:42 / /mnt/with\\040blank rw - cifs //nas/share rw
43 22 0:43 / /data rw - 9p drvfs rw
44 22 0:44 / /bucket rw - fuse mountpoint-s3 rw
45 22 0:45 / /archive rw - fuse /home/me/archive.tar rw
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
        ("/bucket/app.db", "fuse.mountpoint-s3"),
        ("/archive/app.db", "fuse"),
    ],
)
def test_the_kind_is_that_of_the_innermost_mount(path: str, kind: str) -> None:
    assert file_system.kind_among(MOUNTS, Path(path)) == kind


@pytest.mark.parametrize("query", ["file_system=other", "mode=ro", "file_system"])
def test_no_other_parameter_is_taken(query: str) -> None:
    with pytest.raises(fencehold.ConfigurationError) as caught:
        fencehold.connect(f"sqlite:///app.db?{query}")
    assert caught.value.code == "bad_url"
