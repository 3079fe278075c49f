"""The stored procedures, unmodified: every rule, allowed and refused, against a server context of our own; and every
call they make to the server, type-checked against the published types of the server's own context.
"""

import subprocess
from pathlib import Path

import pytest

from fencehold.model.items.rules import RULES
from tests.servers.programs import NPM, require

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[5] / "src" / "fencehold" / "backends" / "cosmos" / "js"


@pytest.mark.needs("node")
@pytest.mark.parametrize("script", ["lease", "nextForState"])
def test_each_rule_holds_in_the_procedure_itself(script):
    command = [str(require("node")), "--test", "--test-reporter=spec", str(HERE / f"{script}.test.mjs")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def type_checked(*files: Path) -> "subprocess.CompletedProcess[str]":
    """Parameters need no types of their own; what is done with the server's context is what counts."""
    types = [
        "--typeRoots",
        str(NPM / "@types"),
        "--types",
        "documentdb-server",
        "--lib",
        "es2015",
        "--target",
        "es2015",
    ]
    strict = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--noImplicitAny", "false"]
    command = [str(require("node")), str(require("tsc")), *types, *strict, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.needs("node", "tsc")
def test_lease_js_and_next_for_state_js_agree_with_the_types_of_the_server():
    files = sorted(SCRIPTS.glob("*.js"))
    assert [path.name for path in files] == ["lease.js", "nextForState.js"]
    answer = type_checked(*files)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.needs("node", "tsc")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("{ etag: item._etag }", "{ eTag: item._etag }"),
        ("collection.replaceDocument(", "collection.updateDocument("),
        ("getContext().getResponse()", "getContext().response()"),
        ("page.continuation", "page.continuationToken"),
    ],
)
def test_a_procedure_that_asks_the_server_for_what_it_does_not_have_is_found(tmp_path: Path, right: str, wrong: str):
    text = (SCRIPTS / "lease.js").read_text(encoding="utf-8")
    assert right in text
    copy = tmp_path / "lease.js"
    copy.write_text(text.replace(right, wrong), encoding="utf-8")
    assert type_checked(copy).returncode != 0


def test_each_rule_is_cited_by_the_procedure_that_implements_it():
    lines = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in SCRIPTS.glob("*.js")}
    assert {name: text[0] for name, text in lines.items()} == {name: f"// name: {name}" for name in lines}
    headers = [line.removeprefix("// rules: ") for text in lines.values() for line in text if "// rules: " in line]
    cited = [rule for header in headers for rule in header.split()]
    assert sorted(cited) == sorted(rule.id for rule in RULES)
