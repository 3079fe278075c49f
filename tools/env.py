"""Make .venv hold this package (editable) with the named extras; instant when it already does.

Runs on whatever python3 starts it, so the syntax here stays old. The environment itself is made by the newest Python
found that is 3.11 or later and has venv and pip.

usage: env.py EXTRA[,EXTRA...]        PYTHON=/path/to/python3 chooses another interpreter
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "fencehold-env.json")
CANDIDATES = ["python3.14", "python3.13", "python3.12", "python3.11", "python3", "/usr/bin/python3"]
PROBE = """
import sys
ok = sys.version_info >= (3, 11)
try:
    import ensurepip, venv
except ImportError:
    venv = None
print(*sys.version_info[:2], int(ok and venv is not None), sys.executable)
"""


def main():
    # Two at once would install over each other; the second waits and then finds nothing to do.
    with open(os.path.abspath(__file__)) as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        bring(set(sys.argv[1].split(",")) if len(sys.argv) > 1 else {"dev"})


def bring(extras):
    wanted = fingerprint()
    stamp = read_stamp()
    if stamp.get("fingerprint") == wanted and satisfied(extras, set(stamp.get("extras", []))):
        return
    if stamp.get("root") != ROOT or not works(VENV_PYTHON):
        create()
    extras |= set(stamp.get("extras", [])) if stamp.get("root") == ROOT else set()
    install(sorted(extras))
    with open(STAMP, "w") as out:
        json.dump({"root": ROOT, "fingerprint": wanted, "extras": sorted(extras)}, out)


def satisfied(wanted, present):
    """dev contains what the demo and the shell need, so that after a test run they install nothing."""
    return wanted <= present or (wanted <= {"cli", "postgres", "service"} and "dev" in present)


def fingerprint():
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        with open(os.path.join(ROOT, name), "rb") as source:
            digest.update(source.read())
    return digest.hexdigest()


def read_stamp():
    try:
        with open(STAMP) as source:
            return json.load(source)
    except (OSError, ValueError):
        return {}


def works(python):
    """True when this interpreter runs, is new enough and has pip."""
    check = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.call([python, "-c", check], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def create():
    python = find_python()
    say("making .venv with %s" % python)
    shutil.rmtree(VENV, ignore_errors=True)
    run([python, "-m", "venv", VENV], "could not make .venv")


def find_python():
    """The newest Python that can make an environment; on Debian as root its venv package is added when missing."""
    found = probe_all()
    usable = [row for row in found if row[1]]
    if not usable and any(row[0] >= (3, 11) for row in found) and add_debian_venv():
        found = probe_all()
        usable = [row for row in found if row[1]]
    if usable:
        return max(usable, key=lambda row: row[0])[2]
    if any(row[0] >= (3, 11) for row in found):
        return stop(
            "Python 3.11+ is here, its venv module is not. On Debian or Ubuntu: sudo apt-get install python3-venv"
        )
    seen = ", ".join("%d.%d" % row[0] for row in found) or "none"
    return stop(
        "Python 3.11 or newer is needed; found: %s. Install one, or name it: make PYTHON=/path/to/it ..." % seen
    )


def probe_all():
    chosen = os.environ.get("PYTHON")
    rows = []
    for name in [chosen] if chosen else CANDIDATES:
        path = shutil.which(name)
        if path is None:
            continue
        answer = subprocess.run([path, "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        words = answer.stdout.decode().split(None, 3)
        if answer.returncode == 0 and len(words) == 4:
            rows.append(((int(words[0]), int(words[1])), words[2] == "1", words[3].strip()))
    return rows


def add_debian_venv():
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    say("adding Debian's python3-venv")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    subprocess.call(["apt-get", "update", "-qq"], env=env, **quiet)
    return subprocess.call(["apt-get", "install", "-y", "-qq", "python3-venv"], env=env, **quiet) == 0


def install(extras):
    say("installing fencehold[%s]" % ",".join(extras))
    command = [
        VENV_PYTHON,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar",
        "off",
    ]
    command += ["-c", os.path.join(ROOT, "constraints.txt"), "-e", "%s[%s]" % (ROOT, ",".join(extras))]
    run(command, "could not install the dependencies")


def run(command, complaint):
    """Quiet unless it fails; then everything it said."""
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if answer.returncode:
        sys.stderr.write(answer.stdout.decode(errors="replace"))
        stop("%s (exit code %d); what it said stands above" % (complaint, answer.returncode))


def say(text):
    print("env: %s" % text, flush=True)


def stop(text):
    sys.exit("env: %s" % text)


if __name__ == "__main__":
    main()
