"""Statements live in .sql files: one per file, named after it, the same names in every dialect."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencehold.model.items import rules as items
from fencehold.model.outbox import rules as events
from submission_manager.model import outcomes
from tests.tidy.tree import ROOT, docstrings, parsed

BACKENDS = ROOT / "src" / "fencehold" / "backends"
#: The service's dialects stand side by side in one folder.
SERVICE = ROOT / "src" / "submission_manager" / "stores" / "sql"
DEMO = ROOT / "src" / "submission_manager" / "demo" / "sql"
VERIFY = ROOT / "src" / "fencehold" / "verify" / "sql"
TOPICS = ["", "outbox", "items"]
RULE_IDS = {"outbox": {rule.id for rule in events.RULES}, "items": {rule.id for rule in items.RULES}}
STATEMENT = re.compile(
    r"\bSELECT\b.*\bFROM\b|\bUPDATE\b\s+\S+\s+\bSET\b|\bINSERT\s+INTO\b|\bDELETE\s+FROM\b", re.IGNORECASE | re.DOTALL
)


def misnamed_statements(backends: Path) -> list[str]:
    return [
        f"{path.relative_to(backends)}: the first line is not '-- name: {path.stem}'"
        for topic in TOPICS
        for dialect in dialects(backends, topic)
        for path in statements(backends, dialect, topic)
        if lines(path)[0] != f"-- name: {path.stem}"
    ]


def uneven_dialects(backends: Path, topic: str = "") -> list[str]:
    """Statements that a dialect lacks and that are not kept to others."""
    found = {one: list(statements(backends, one, topic)) for one in dialects(backends, topic)}
    names = {one: {path.stem for path in paths} for one, paths in found.items()}
    wanted = {(of, path.stem) for one, paths in found.items() for path in paths for of in kept_to(one, path) or found}
    return [f"{one}: no statement {name}" for one, name in sorted(wanted) if name not in names.get(one, set())]


def kept_to(dialect: str, path: Path) -> set[str]:
    """Its second line says for which dialects alone it is, its own among them, and why; none: for all."""
    said = re.fullmatch(r"-- only: (\w+(?: and \w+)*), because \S.*", "".join(lines(path)[1:2]))
    named = set(said[1].split(" and ")) if said else set()
    return named if dialect in named else set()


def unknown_rules(backends: Path, topic: str = "outbox") -> list[str]:
    """Rules of a topic that a statement cites and the table does not have, and those that no statement cites."""
    rules = RULE_IDS[topic]
    cited = {one: cited_rules(statements(backends, one, topic)) for one in dialects(backends, topic)}
    return [f"{one}: {rule}" for one, found in sorted(cited.items()) for rule in sorted(found ^ rules)]


def cited_rules(paths: Iterator[Path]) -> set[str]:
    headers = (
        line.removeprefix("-- rules: ") for path in paths for line in lines(path) if line.startswith("-- rules: ")
    )
    return {word for header in headers for word in header.split()}


def dialects(backends: Path, topic: str = "") -> list[str]:
    return sorted({path.relative_to(backends).parts[0] for path in backends.glob(f"*/{folder(topic)}/*.sql")})


def statements(backends: Path, dialect: str, topic: str = "") -> Iterator[Path]:
    """Those directly in the folder; migrations, in one of their own, differ by nature."""
    return iter(sorted((backends / dialect / folder(topic)).glob("*.sql")))


def folder(topic: str) -> str:
    return f"sql/{topic}" if topic else "sql"


def lines(path: Path) -> list[str]:
    return [line.rstrip() for line in path.read_text(encoding="utf-8").split("\n")]


def statements_in_python(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{node.lineno}: {' '.join(text.split())[:60]}"
        for path, tree in parsed(root)
        for node, text in texts(tree)
        if STATEMENT.search(text)
    ]


def texts(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Every text in the code, an f-string as one with its fields left out; docstrings are prose."""
    prose = docstrings(tree)
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            yield node, "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose | inside:
            yield node, node.value


def test_each_statement_is_named_after_its_file():
    assert misnamed_statements(BACKENDS) == []


@pytest.mark.parametrize("topic", TOPICS)
def test_every_dialect_has_the_same_statements(topic):
    assert uneven_dialects(BACKENDS, topic) == []


@pytest.mark.parametrize("topic", RULE_IDS)
def test_each_rule_is_cited_by_the_statement_that_implements_it(topic):
    assert unknown_rules(BACKENDS, topic) == []


@pytest.mark.parametrize("room", ["backends", "runtime", "verify"])
def test_python_files_hold_no_statements(room):
    assert statements_in_python(ROOT / "src" / "fencehold" / room) == []


def test_the_services_python_files_hold_no_statements():
    assert statements_in_python(ROOT / "src" / "submission_manager") == []


@pytest.mark.parametrize(("folder", "count"), [(SERVICE, 3), (DEMO, 3), (VERIFY, 2)], ids=["service", "demo", "verify"])
def test_statements_beside_the_backends_are_named_after_their_files_and_the_same_in_every_dialect(
    folder: Path, count: int, tmp_path: Path
) -> None:
    for dialect in folder.iterdir():
        (tmp_path / dialect.name).mkdir()
        (tmp_path / dialect.name / "sql").symlink_to(dialect)
    assert len(dialects(tmp_path)) == count
    assert misnamed_statements(tmp_path) == []
    assert uneven_dialects(tmp_path) == []


def test_what_the_service_judges_is_written_by_one_statement_in_each_dialect():
    for dialect in SERVICE.iterdir():
        assert cited_rules(iter(dialect.glob("*.sql"))) == {rule.id for rule in outcomes.RULES}


def test_a_misnamed_statement_and_a_missing_one_are_found(tmp_path):
    for place, text in {
        "sqlite/sql/renew.sql": "-- name: renew\n",
        "postgres/sql/renew.sql": "-- name: renew\n",
        "postgres/sql/claim.sql": "-- name: clame\n",
        "postgres/sql/migrations/0001.sql": "CREATE TABLE x ();",
    }.items():
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert misnamed_statements(tmp_path) == ["postgres/sql/claim.sql: the first line is not '-- name: claim'"]
    assert uneven_dialects(tmp_path) == ["sqlite: no statement claim"]


def test_a_statement_for_one_dialect_says_so_in_its_second_line(tmp_path):
    for place, text in {
        "sqlite/sql/outbox/claim.sql": "-- name: claim\n",
        "postgres/sql/outbox/claim.sql": "-- name: clam\n",
        "postgres/sql/outbox/turn.sql": "-- name: turn\n-- only: postgres, because two cost nothing elsewhere.\n",
        "postgres/sql/outbox/vain.sql": "-- name: vain\n-- only: postgres\n",
        "postgres/sql/outbox/late.sql": "-- name: late\n-- a remark\n-- only: postgres, because it is late.\n",
        "postgres/sql/outbox/else.sql": "-- name: else\n-- only: sqlite, because of a mistake.\n",
    }.items():
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert misnamed_statements(tmp_path) == ["postgres/sql/outbox/claim.sql: the first line is not '-- name: claim'"]
    missing = ["else", "late", "vain"]
    assert uneven_dialects(tmp_path, "outbox") == [f"sqlite: no statement {name}" for name in missing]


def test_a_statement_for_two_dialects_is_in_both_and_says_so(tmp_path):
    for place, text in {
        "sqlite/sql/lock.sql": "-- name: lock\n-- only: sqlite and postgres, because the third has no use for it.\n",
        "postgres/sql/lock.sql": "-- name: lock\n-- only: sqlite and postgres, because the third has no use for it.\n",
        "postgres/sql/hold.sql": "-- name: hold\n-- only: sqlite and postgres, because the third has no use for it.\n",
        "sqlserver/sql/hint.sql": "-- name: hint\n-- only: sqlserver, because it has hints.\n",
    }.items():
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert uneven_dialects(tmp_path) == ["sqlite: no statement hold"]


def test_a_statement_in_python_is_found(tmp_path):
    (tmp_path / "a.py").write_text(
        '"""Reads: SELECT x FROM y."""\n'
        'A = "SELECT 1\\n FROM t"\n'
        'B = f"update {table} set n = 1"\n'
        'C = "insert into t values (1)"\n'
        'D = f"DELETE FROM {table}"\n'
        'E = "SELECT pg_sleep(1)"\n'
    )
    assert [line.split(":")[1] for line in statements_in_python(tmp_path)] == ["2", "3", "4", "5"]
