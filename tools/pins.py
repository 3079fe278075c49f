"""Write constraints.txt anew: the exact version of everything that `dev` and `all` resolve to here, and nothing else.

Addresses and hashes are left out on purpose: whoever installs uses their own package source.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Exact versions of everything the extras `dev` and `all` install. Renew with: make pins\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        wanted = f"{ROOT}[all,dev]"
        command = [sys.executable, "-m", "pip", "install", "-q", "-q", "--dry-run", "--ignore-installed"]
        subprocess.run([*command, "--report", str(report), "-e", wanted], check=True, stdin=subprocess.DEVNULL)
        found = [entry["metadata"] for entry in json.loads(report.read_text())["install"]]
    pins = sorted(f"{one['name'].lower()}=={one['version']}" for one in found if one["name"] != "fencehold")
    (ROOT / "constraints.txt").write_text(HEADER + "\n".join(pins) + "\n")
    print(f"constraints.txt: {len(pins)} pins")


if __name__ == "__main__":
    main()
