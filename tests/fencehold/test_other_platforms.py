"""Import, memory and SQLite where Python lacks what only Linux has. The product itself has never run there."""

import functools
import json
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fencehold.cli.run.guardian import kernel
from fencehold.ports.clock import _machine_clock, boot_s
from tests.fencehold.platform_names import UNIX_MODULES, missing_on

#: The standard library of this machine is for Linux: it is imported first, and given what it cannot do without.
TAKE_AWAY = """
import asyncio, concurrent.futures, importlib, json, logging, os, select, selectors, signal, socket, sqlite3, subprocess
import sys, threading, time, uuid, multiprocessing.util, tempfile, traceback
selectors.DefaultSelector = selectors.SelectSelector
pair, unix = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda *args: pair(*(args or (unix,)))
modules, names = json.loads(sys.argv[1])
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
for name in modules:
    sys.modules.pop(name, None)
for module, gone in names.items():
    for name in gone:
        if hasattr(sys.modules[module], name):
            delattr(sys.modules[module], name)
"""

PROGRAM = """
import fencehold, fencehold.sync
from fencehold.runtime.core.clock import BootClock

async def work(url):
    before_s = BootClock().now_s()
    async with fencehold.connect(url) as store:
        await store.init()
        outbox, handled = store.outbox(), []
        async def job(term):
            async with term.transaction() as tx:
                await tx.execute(*STATEMENT[url])
            return term.epoch
        assert await store.run_as_leader("x", job, lease=5) == 1
        async with store.leader("x", lease=1) as leader:
            async for term in leader.terms():
                async with term:
                    until = term.expires_at
                    while term.expires_at == until:  # it is renewed
                        await asyncio.sleep(0.02)
                break
        async def handle(event):
            handled.append(event.payload)
            worker.stop()
        await outbox.add("a", {"id": 7})
        worker = outbox.worker(handle)
        await worker.run()
        assert handled == [{"id": 7}]
        items = store.items("k")
        await items.put("1", state="NEW", document={})
        async with await items.acquire("1") as item:
            await item.save(state="DONE")
    assert before_s < BootClock().now_s() < before_s + 60

STATEMENT = {"memory://m": [lambda: None], "sqlite:///a.db": ["CREATE TABLE t (a)"]}
for url in STATEMENT:
    asyncio.run(work(url))
with fencehold.sync.connect("sqlite:///a.db") as store:
    assert store.run_as_leader("y", lambda term: term.epoch, lease=5) == 1
print("done")
"""


@pytest.mark.parametrize(("platform", "modules"), [("win32", UNIX_MODULES), ("darwin", ())])
def test_import_memory_and_sqlite_work_without_the_names_that_only_linux_has(
    platform: str, modules: tuple[str, ...], tmp_path: Path
) -> None:
    names = missing_on(platform)
    assert "CLOCK_BOOTTIME" in names["time"]
    command = [sys.executable, "-W", "error", "-c", TAKE_AWAY + PROGRAM, json.dumps([modules, names])]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_what_is_taken_away_is_really_gone(tmp_path: Path) -> None:
    program = TAKE_AWAY + "\nprint(hasattr(time, 'clock_gettime'), hasattr(os, 'fork'), hasattr(signal, 'SIGHUP'))"
    program += "\ntry:\n    import fcntl\nexcept ImportError:\n    print('no fcntl')"
    command = [sys.executable, "-c", program, json.dumps([UNIX_MODULES, missing_on("win32")])]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert done.stdout == "False False False\nno fcntl\n"


def test_the_clock_is_the_one_that_counts_sleep_on_each_system(monkeypatch: pytest.MonkeyPatch) -> None:
    on_linux = _machine_clock()
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    on_macos = _machine_clock()
    assert isinstance(on_linux, functools.partial)
    assert isinstance(on_macos, functools.partial)
    monkeypatch.undo()
    assert (on_linux.args, on_macos.args) == ((time.CLOCK_BOOTTIME,), (time.CLOCK_MONOTONIC,))


def test_the_guardian_of_run_counts_on_the_same_clock_and_asks_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It imports nothing of the library, so it has that choice a second time."""
    before_s, now_s, after_s = boot_s(), kernel.now_s(), boot_s()
    assert before_s <= now_s <= after_s
    monkeypatch.delattr(time, "CLOCK_MONOTONIC")
    assert runpy.run_path(kernel.__file__)["now_s"]() >= after_s


PACKAGES = ("model", "ports", "runtime", "telemetry", "backends", "testing", "sync")
MODULES = ("connect",)


@pytest.mark.long
@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_the_type_checker_finds_no_name_that_the_platform_lacks(platform: str, tmp_path: Path) -> None:
    packages = [f"--package=fencehold.{name}" for name in PACKAGES] + [f"--module=fencehold.{name}" for name in MODULES]
    command = [sys.executable, "-m", "mypy", "--platform", platform, "--no-warn-unreachable", *packages]
    command += ["--cache-dir", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout
