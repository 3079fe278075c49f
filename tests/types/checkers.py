"""mypy and pyright, run over programs as a user of the package would run them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.programs import ROOT, require

LIMIT_S = 240
CACHE = ROOT / ".mypy_cache" / "programs"


@dataclass(frozen=True)
class Report:
    """One thing that a checker said of one line, counted from 1; `rule` is mypy's code, or pyright's rule."""

    file: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text} [{self.rule}]"


def written(folder: Path, programs: Mapping[str, str]) -> list[str]:
    for name, text in programs.items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(programs)


def mypy(folder: Path, programs: Mapping[str, str]) -> list[Report]:
    """What `mypy --strict` reports, without a configuration file."""
    strict = ["-m", "mypy", "--strict", "--config-file=", "--output=json", f"--cache-dir={CACHE}"]
    said = _said(folder, [sys.executable, *strict, *written(folder, programs)])
    found = [json.loads(line) for line in said.splitlines() if line]
    return [Report(one["file"], one["line"], str(one["code"]), one["message"]) for one in found]


def pyright(folder: Path, programs: Mapping[str, str], *, strict: bool = False) -> list[Report]:
    """What pyright reports in its usual mode, or in its strict one."""
    mode = "strict" if strict else "standard"
    names = written(folder, programs)
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": mode, "include": names}))
    asked = ["--outputjson", "--pythonpath", sys.executable, "--project", str(folder)]
    found = json.loads(_said(folder, [str(require("node")), str(require("pyright")), *asked]))
    assert found["summary"]["filesAnalyzed"] == len(names)
    return [_report(one) for one in found["generalDiagnostics"]]


def _report(one: Mapping[str, Any]) -> Report:
    line = one.get("range", {"start": {"line": -1}})["start"]["line"] + 1
    return Report(Path(one["file"]).name, line, one.get("rule", one["severity"]), one["message"])


def _said(folder: Path, command: list[str]) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: it has something to report
    assert not done.stderr, done.stderr
    return done.stdout
