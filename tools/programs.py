"""Bring the programs that only the system's package source has, where we may; write down what stays missing.

We may when we are root and apt-get is here. Nothing that gets installed is left running: the tests start servers of
their own. What is missing goes to .venv/programs.json, which the test run reads to say why a test was not run.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import npm_programs

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / ".venv" / "programs.json"
SEARCH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])

#: name the tests use -> Debian packages that bring it
PACKAGES = {
    "bash": ["bash"],
    "curl": ["curl"],
    "etcd": ["etcd-server"],
    "faketime": ["faketime"],
    "gcc": ["gcc", "libc6-dev"],
    "haproxy": ["haproxy"],
    "node": ["nodejs"],
    "npm": ["npm"],
    "pgbouncer": ["pgbouncer"],
    "postgresql-15": ["postgresql-15"],
    "promtool": ["prometheus"],
    "spin": ["spin"],
    "zsh": ["zsh"],
}
SERVICES = ("etcd", "haproxy", "pgbouncer", "prometheus")
QUIET_ENV = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
LIMIT_S = 600


def main() -> None:
    missing = [name for name in PACKAGES if not present(name)]
    reasons = bring(missing) if missing else {}
    reasons |= npm_programs.bring()
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(reasons, indent=1))
    if reasons:
        print("programs: not here: " + ", ".join(f"{name} ({why})" for name, why in reasons.items()), flush=True)


def present(name: str) -> bool:
    if name == "postgresql-15":
        return Path("/usr/lib/postgresql/15/bin/postgres").exists()
    return shutil.which(name, path=SEARCH) is not None


def bring(names: list[str]) -> dict[str, str]:
    """Install what can be installed; the answer holds, for each still missing, the reason."""
    if shutil.which("apt-get", path=SEARCH) is None:
        return dict.fromkeys(names, "not installed, and there is no apt-get to install it with")
    if os.geteuid() != 0:
        return dict.fromkeys(names, "not installed, and only root may install it")
    print("programs: installing " + ", ".join(names), flush=True)
    apt("update")
    running = running_services()
    reasons = {}
    for name in names:
        complaint = apt("install", "-y", "--no-install-recommends", *PACKAGES[name])
        if not present(name):
            reasons[name] = complaint or "not installed"
    stop_what_started(running)
    if "postgresql-15" in names:
        drop_new_cluster()
    return reasons


def apt(*words: str) -> str | None:
    """None when it worked, else its last line; the whole output goes to standard error."""
    answer = quietly("apt-get", "-qq", *words)
    if answer.returncode == 0:
        return None
    sys.stderr.write(answer.stdout)
    lines = answer.stdout.strip().splitlines()
    return lines[-1] if lines else f"apt-get {words[0]} failed"


def quietly(*command: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            env=QUIET_ENV,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return subprocess.CompletedProcess(command, 1, f"{command[0]}: {fault}\n")


def running_services() -> set[str]:
    """Those that ran before we came; they stay as they are."""
    if not Path("/run/systemd/system").exists():
        return set()
    return {name for name in SERVICES if quietly("systemctl", "is-active", "-q", name).returncode == 0}


def stop_what_started(before: set[str]) -> None:
    for name in running_services() - before:
        quietly("systemctl", "disable", "--now", name)


def drop_new_cluster() -> None:
    """Debian's package makes a cluster of its own on installing; we came for the programs only."""
    if Path("/var/lib/postgresql/15/main").exists():
        quietly("pg_dropcluster", "--stop", "15", "main")


if __name__ == "__main__":
    main()
