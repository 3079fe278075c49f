"""Finding and ending every process below another one, in each of the ways there are."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fencehold.cli.run.guardian
from fencehold.cli.run.guardian import cgroup
from tests.fencehold.cli.run import control_groups

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the process group alone is guarded")

# Run in a process of its own: what is found, and ended, is everything below the process that calls.
PRELUDE = """
import json, os, signal, subprocess, sys, time
sys.path.append(sys.argv[1])
from guardian import Cgroup, Descendants, become_subreaper, descendants, now_s

def family():
    '''A child in a session of its own, and a grandchild in another; both end after ten seconds.'''
    script = "setsid sh -c 'echo $$; exec sleep 10' & exec sleep 10"
    child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    return child.pid, int(child.stdout.readline())

def is_dead(pid):
    return not descendants._is_alive(pid)

become_subreaper()
"""


def told(script: str) -> Any:
    """What the script printed as JSON; a fault on its stderr fails the test."""
    folder = str(Path(fencehold.cli.run.guardian.__file__).parents[1])
    command = [sys.executable, "-I", "-S", "-c", PRELUDE + script, folder]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=30)
    return json.loads(ended.stdout)


@pytest.mark.parametrize("by", ["children", "scan"])
def test_whoever_left_the_session_is_found_and_ended(by):
    script = f"""
people = family()
all = Descendants(by={by!r}, group=people[0])
found = sorted(all.find()) == sorted(people)
left = all.end(5)
print(json.dumps([found, left, [is_dead(pid) for pid in people]]))
"""
    assert told(script) == [True, [], [True, True]]


def test_a_signal_goes_once_to_each_of_them_wherever_it_fled():
    script = """
people = family()
all = Descendants(group=people[0])
sent = []
os.kill = lambda pid, signum: sent.append(pid)
all.signal(signal.SIGTERM)
print(json.dumps([sent == [-people[0], people[1]]]))
"""
    assert told(script) == [True]


def test_who_was_not_there_before_is_pursued_at_once_and_who_was_killed_gets_time_to_die():
    script = """
all = Descendants()
pauses = []
for found in ({1}, {2}, {2}, {2}, {2, 3}, {3}):
    all._note_round(found)
    pauses.append(all.pause_s)
print(json.dumps(pauses))
"""
    assert told(script) == [0, 0, 0.002, 0.003, 0, 0.002]


def test_whom_nobody_here_may_signal_is_named_when_only_such_are_left():
    script = """
people = family()
kill = os.kill
def not_that_one(pid, signum):
    if pid == people[1]:
        raise PermissionError
    kill(pid, signum)
os.kill = not_that_one
began_s = now_s()
left = Descendants(group=people[0]).end(20)
print(json.dumps([left == [people[1]], is_dead(people[0]), now_s() - began_s < 10]))
"""
    assert told(script) == [True, True, True]


def test_one_look_at_a_list_proves_nothing():
    """Lists are no snapshots: somebody who has just been forked may be in none of them."""
    script = """
people = family()
all = Descendants(group=people[0])
all._refused = {people[0]}
answers = []
for _ in range(3):
    all._note_round({people[0]})
    answers.append(all.survivors(childless=False))
descendants._by_lists = lambda *_: set()
missed = Descendants(group=people[0]).survivors(childless=False)
print(json.dumps([[answer is not None for answer in answers], missed]))
"""
    assert told(script) == [[False, False, True], None]


def test_a_process_that_does_not_die_is_named_when_the_limit_has_passed():
    script = """
people = family()
os.kill = lambda pid, signum: None
began_s = now_s()
left = Descendants(group=people[0]).end(0.1)
print(json.dumps([left == sorted(people), now_s() - began_s < 5]))
"""
    assert told(script) == [True, True]


# The control group


def test_a_control_group_ends_whom_no_list_shows(request):
    script = """
def enter():
    group.enter()
group = Cgroup.make()
child = subprocess.Popen(["sleep", "10"], preexec_fn=enter, start_new_session=True)
all = Descendants(cgroup=group, by="group")
all.kill()
print(json.dumps([all.by, child.wait(5)]))
group.remove()
"""
    control_groups.must_be_makeable(request.config)
    assert told(script) == ["cgroup", -9]


@pytest.mark.parametrize(
    ("on_systemd", "delegate", "ours"),
    [
        (False, None, True),
        (True, None, False),
        (True, ("user.delegate", b"1"), True),
        (True, ("trusted.delegate", b"1"), True),
        (True, ("user.delegate", b"0"), False),
    ],
)
def test_where_systemd_manages_the_control_groups_only_a_delegated_one_is_divided(
    monkeypatch, on_systemd, delegate, ours
):
    def getxattr(_: str, name: str) -> Any:
        if not delegate or delegate[0] != name:
            raise OSError
        return delegate[1]

    monkeypatch.setattr(cgroup, "own_cgroup", lambda: "/sys/fs/cgroup/system.slice/job.service")
    monkeypatch.setattr(os.path, "exists", lambda path: on_systemd if path == "/run/systemd/system" else True)
    monkeypatch.setattr(os, "getxattr", getxattr, raising=False)
    assert cgroup.is_ours_to_divide() is ours


def test_a_command_that_cannot_enter_its_control_group_is_found_by_lists_and_the_group_is_removed():
    script = """
from guardian import loop
def refused(group):
    raise PermissionError
def remove(group):
    removed.append(group.path)
removed = []
loop.is_ours_to_divide = lambda: True
loop.Cgroup.make = classmethod(lambda cls: cls("/no/such/group"))
loop.Cgroup.enter, loop.Cgroup.remove = refused, remove
commands_r, commands_w = os.pipe()
status_r, status_w = os.pipe()
order = {"start": {}, "deadline_s": now_s() + 10, "grace_s": 1, "warn_s": 1, "kill_lead_s": 0.1}
os.write(commands_w, json.dumps(order).encode() + b"\\n")
loop.main([str(commands_r), str(status_w), "cgroup", "/bin/true", "true"])
started = json.loads(os.read(status_r, 65536).splitlines()[0])
print(json.dumps([started["by"], started["cgroup"], removed]))
"""
    assert told(script) == ["children", None, ["/no/such/group"]]
