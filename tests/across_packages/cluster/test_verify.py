"""`fencehold verify` on a real cluster, which is switched over in the middle of the run by the user's own command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.across_packages.cluster.modes import SYNCHRONOUS
from tests.servers.cluster import Cluster

ASK = (
    "import json, sys, urllib.request as u; "
    "r = u.Request(sys.argv[1], json.dumps({'leader': sys.argv[2]}).encode(), method='POST'); "
    "print(u.urlopen(r, timeout=30).read().decode())"
)


@pytest.mark.long
@SYNCHRONOUS
@pytest.mark.limit(300)
def test_verify_passes_through_a_real_switchover(cluster: Cluster, database: str, tmp_path: Path) -> None:
    old, hook = cluster.primary(), tmp_path / "switchover.py"
    hook.write_text(ASK)
    told = f"{sys.executable} {hook} http://127.0.0.1:{old.rest_port}/switchover {old!r}"
    ran = subprocess.run(
        [sys.executable, "-m", "fencehold.cli", "verify", cluster.url(database), "--for", "60s", "-o", "json",
         "--failover-hook", told, "--report", str(tmp_path / "report.html")],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    found = json.loads(ran.stdout)
    assert ran.returncode == 0, [one for one in found["invariants"] if one["held"] is not True]
    assert "Successfully" in found["hooks"][0]["output"]
    assert cluster.primary() is not old
    assert "failover-hook" in (tmp_path / "report.html").read_text()
