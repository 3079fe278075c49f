"""docs/api.txt is the public contract: what it lists is there, and nothing else is."""

import subprocess
import sys

from tests.tidy.tree import ROOT


def test_the_list_of_public_names_is_current():
    command = [sys.executable, str(ROOT / "tools" / "public_api.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stdout


def test_a_name_that_is_not_listed_is_found():
    command = [sys.executable, "-c", CHANGED, str(ROOT / "tools")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 1
    assert "+one_more(" in done.stdout


CHANGED = """
import sys
sys.path.insert(0, sys.argv[1])
import public_api, fencehold
def one_more(name: str) -> None: ...
fencehold.one_more = one_more
fencehold.__all__.append("one_more")
sys.exit(public_api.main(["--check"]))
"""
