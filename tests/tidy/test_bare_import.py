"""`import fencehold` needs the standard library and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

#: No site-packages (-S), no environment and no current folder (-I): an interpreter with nothing installed.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import fencehold
from_elsewhere = {name.split(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"__main__", "fencehold"}
print(json.dumps(sorted(from_elsewhere)))
"""


def imported_besides_the_standard_library(src: Path) -> list[str]:
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(src)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if answer.returncode:
        raise ImportError(answer.stderr)
    return list(json.loads(answer.stdout))


def test_the_package_imports_with_nothing_installed():
    assert imported_besides_the_standard_library(ROOT / "src") == []


def test_a_package_that_needs_more_is_found(tmp_path):
    (tmp_path / "fencehold").mkdir()
    (tmp_path / "driver.py").write_text("")
    (tmp_path / "fencehold" / "__init__.py").write_text("import driver")
    assert imported_besides_the_standard_library(tmp_path) == ["driver"]


def test_an_installed_driver_is_out_of_reach(tmp_path):
    (tmp_path / "fencehold").mkdir()
    (tmp_path / "fencehold" / "__init__.py").write_text("import psycopg")
    with pytest.raises(ImportError, match="psycopg"):
        imported_besides_the_standard_library(tmp_path)
