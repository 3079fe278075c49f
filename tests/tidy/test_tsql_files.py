"""SQL Server's statements, checked without a server: all of each is T-SQL, and it keeps this backend's own rules."""

import re
from pathlib import Path

import pytest
from sqlglot import exp

from tests.tidy.tree import ROOT
from tests.tidy.tsql import NotTsql, batches, parsed, words

FOLDERS = ("sqlserver", "mssql", "mssqlleaderlock")
FILES = sorted(path for path in (ROOT / "src").rglob("*.sql") if set(FOLDERS) & set(path.relative_to(ROOT).parts))
#: The only clock; tests put another in its place by this name.
CLOCK = "SYSUTCDATETIME"
OTHER_CLOCKS = {"GETDATE", "GETUTCDATE", "SYSDATETIME", "SYSDATETIMEOFFSET", "CURRENT_TIMESTAMP"}
#: Newer than SQL Server 2016, or not on every server that speaks T-SQL.
LACKING = {"MERGE", "WAITFOR", "STRING_AGG", "TRIM", "CONCAT_WS", "TRANSLATE", "GREATEST", "LEAST", "GENERATE_SERIES"}
#: Not in a typed header: a condition for a caller's own WHERE, and what `fencehold sql init` writes into a script.
WITHOUT_HEADER = {"guard", "steps_record", "steps_recorded"}
#: Conditions, not statements.
CONDITIONS = {"guard", "steps_recorded"}
#: What makes tables and triggers, batch by batch; a trigger's body is inside the transaction that set it off.
MAKING = {path for path in FILES if path.parent.name == "migrations"}
DECLARED = re.compile(r"@\w+ \w+(?: \( \w+ \))? = $")


def text_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return f"SELECT 1 WHERE {text}" if path.stem in CONDITIONS else text


def name(path: Path) -> str:
    return str(path.relative_to(ROOT / "src"))


def upper_words(text: str) -> list[str]:
    return [word.upper for word in words(text)]


def loose_parameters(text: str) -> list[str]:
    """Parameters that stand elsewhere than `DECLARE @name type = :name`, or more than once."""
    found = [word.text for word in words(text)]
    at = [place for place, word in enumerate(found) if re.fullmatch(r":[a-z_]\w*", word)]
    loose = [found[place] for place in at if not DECLARED.search(" ".join(found[:place]) + " ")]
    return loose + [one for one in {found[place] for place in at} if found.count(one) > 1]


def writes(batch: str) -> int:
    """Statements that change a table; a table variable is nobody else's."""
    changing = (tree for tree in parsed(batch) if isinstance(tree, exp.Insert | exp.Update | exp.Delete))
    return sum(not str(tree.this.sql("tsql")).lstrip().startswith("@") for tree in changing)


def test_every_statement_is_tsql(checked_without_server):
    assert len(FILES) > 20
    for path in FILES:
        for batch in batches(text_of(path)):
            try:
                assert parsed(batch), name(path)
            except NotTsql as problem:
                raise AssertionError(f"{name(path)}: {problem}") from None
    checked_without_server(f"{len(FILES)} statement files parsed as T-SQL")


@pytest.mark.parametrize("path", FILES, ids=name)
def test_only_one_clock_is_read_and_nothing_is_used_that_a_server_may_lack(path):
    found = upper_words(text_of(path))
    assert not (OTHER_CLOCKS | LACKING) & set(found)
    for place, word in enumerate(found):
        assert word != CLOCK or found[place + 1 : place + 3] == ["(", ")"]


@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in WITHOUT_HEADER], ids=name)
def test_each_parameter_stands_once_in_a_typed_header(path):
    assert loose_parameters(text_of(path)) == []


@pytest.mark.parametrize("path", sorted(set(FILES) - MAKING), ids=name)
def test_what_changes_more_than_one_table_is_one_transaction_inside_its_batch(path):
    found = upper_words(text_of(path))
    begins = sum(
        found[place : place + 2] in (["BEGIN", "TRANSACTION"], ["BEGIN", "TRAN"]) for place in range(len(found))
    )
    if begins and path.stem not in ("enter", "write_try"):  # begins what `commit` ends; only tries, and rolls back
        assert "COMMIT" in found
    assert begins or writes(text_of(path)) <= 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM WHERE b = 1;",
        "UPDATE t SE x = 1;",
        "UPDATE t SET x = 1 OUTPUT inserted.id INTO @t (id) WHRE y = 2;",
        "IF @a = BEGIN SELECT 1; END",
        "BEGIN SELECT 1;",
        "SELECT 1; END",
        "SELECT CASE WHEN 1 = 1 THEN 2;",
        "BEGIN TRY INSERT INTO t (a VALUES (1); END TRY BEGIN CATCH THROW; END CATCH;",
        "CREATE TRIGGER g ON t AFTER UPDATE AS BEGIN DELETE t FORM u; END",
        "SELECT a FROM OPENJSON(@keys) WITH (place int '$.place';",
        "DELETE FROM t OUTPUT deleted.id, INTO @t (id) WHERE a = 1;",
        "UPDATE t SET a = 1 WHERE b = 2 OPTION (LOOP JION);",
        "BACKUP DATABASE x TO DISK = 'y';",
    ],
)
def test_what_is_not_tsql_is_found(text):
    with pytest.raises(NotTsql):
        parsed(text)


def test_a_batch_is_taken_apart_and_all_of_it_is_parsed():
    text = """
        DECLARE @t TABLE (id bigint NOT NULL);
        IF NOT EXISTS (SELECT 1 FROM t WHERE a = CASE WHEN b = 1 THEN 2 ELSE 3 END)
        BEGIN
            BEGIN TRANSACTION;
            DELETE FROM t OUTPUT deleted.id INTO @t (id) WHERE a = :a;
            COMMIT TRANSACTION;
        END
        ELSE IF @@ROWCOUNT = 0 THROW 50001, N'it''s gone; END', 1;
        ELSE UPDATE t SET a = 2;
    """
    kinds = [type(tree).__name__ for tree in parsed(text)]
    assert kinds == ["Declare", "Select", "Transaction", "Delete", "Select", "Commit", "Select", "Select", "Update"]


def test_a_parameter_outside_the_header_and_one_used_twice_are_found():
    assert loose_parameters("DECLARE @a nvarchar(128) = :a, @b int = :b;") == []
    assert loose_parameters("DECLARE @a int = :a; SELECT 1 AS x WHERE 1 = :c;") == [":c"]
    assert loose_parameters("DECLARE @a int = :a, @b int = :a;") == [":a"]
