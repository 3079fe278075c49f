"""A batch of T-SQL in the form in which sqlglot takes all of it.

sqlglot knows T-SQL's statements and little of what stands between them: BEGIN and END, TRY and CATCH, ELSE and a
trigger's head it swallows as one unread text, or refuses. So a batch is taken apart first: the statements and the
conditions come one by one, and only what is listed here is left out.

| in the file                          | what is parsed                                |
| ------------------------------------ | --------------------------------------------- |
| IF condition, WHILE condition        | SELECT 1 WHERE condition                      |
| BEGIN, END, TRY, CATCH, ELSE         | nothing; that they are paired is checked here |
| OUTPUT columns INTO @t (columns)     | SELECT columns, on its own                    |
| DECLARE ... PRIMARY KEY NONCLUSTERED | DECLARE ... PRIMARY KEY                       |
| UPDATE ... OPTION (known hints)      | UPDATE ...; DELETE too                        |
| THROW number, text, state            | SELECT number, text, state                    |
| CREATE TRIGGER name ON table ...     | its body                                      |
| EXEC sp_executesql N'a batch'        | that batch                                    |
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

LEXEME = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)|(?P<text>N?'(?:[^']|'')*')|(?P<quoted>"[^"]+"|\[[^\]]+\])"""
    r"""|(?P<word>(?:@@|[@:#])?[A-Za-z_]\w*)|(?P<other>\d[\w.]*|[<>!+*/%&|^-]=|<>|.)""",
    re.DOTALL,
)
#: What ends a condition: the first word of the statement that depends on it.
FIRST_WORDS = frozenset(
    {
        "BEGIN", "BREAK", "COMMIT", "CONTINUE", "CREATE", "DECLARE", "DELETE", "DROP", "EXEC", "EXECUTE", "IF",
        "INSERT", "RAISERROR", "RETURN", "ROLLBACK", "SAVE", "SELECT", "SET", "THROW", "UPDATE", "WHILE", "WITH",
    }
)  # fmt: skip
TRIGGER = re.compile(r"\s*CREATE\s+TRIGGER\s+\S+\s+ON\s+\S+\s+(?:AFTER|FOR)\s+[A-Z, ]+?\s+AS\b")
OUTPUT = re.compile(
    r"\b(?<!@)OUTPUT (?P<columns>.*?)(?: INTO @\w+(?: \( [^()]* \))?)?(?= FROM | WHERE | VALUES | SELECT |$)", re.DOTALL
)
OPTION = re.compile(r" OPTION \( (?:(?:LOOP JOIN|FORCE ORDER|KEEPFIXED PLAN|RECOMPILE|MAXDOP 1)(?: , )?)+ \)$")
LOOSE_COMMA = re.compile(r", (?:FROM|WHERE|\))|[,(] ,|, ?$")  # which sqlglot forgives
BETWEEN = frozenset({";", "ELSE", "TRY", "CATCH"})
CONDITION = "SELECT 1 WHERE"
QUOTED_BATCH = re.compile(r"EXEC sp_executesql N'(?P<batch>(?:[^']|'')*)'", re.DOTALL)


class NotTsql(Exception):
    """What is wrong, and where."""


@dataclass(frozen=True)
class Word:
    kind: str
    text: str

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text


def batches(text: str) -> list[str]:
    """As sqlcmd splits them: at lines that say GO."""
    return [batch for batch in re.split(r"^GO\s*$", text, flags=re.MULTILINE) if words(batch)]


def words(batch: str) -> list[Word]:
    found = (Word(match.lastgroup or "", match[0]) for match in LEXEME.finditer(batch))
    return [word for word in found if word.kind != "space"]


def parsed(batch: str) -> list[exp.Expr]:
    """The statements of a batch, each understood; NotTsql where one is not."""
    trees: list[exp.Expr] = []
    for statement in apart(batch):
        try:
            found = sqlglot.parse(statement, dialect="tsql", error_level=sqlglot.ErrorLevel.RAISE)
        except sqlglot.ParseError as error:
            raise NotTsql(f"{statement}\n{error.errors[0]['description']}") from None
        for tree in found:
            if tree is None or any(isinstance(node, exp.Command) for node in tree.walk()):
                raise NotTsql(f"not understood: {statement}")
            trees.append(tree)
        if LOOSE_COMMA.search(statement):
            raise NotTsql(f"a comma too many: {statement}")
    return trees


def apart(batch: str) -> list[str]:
    """The statements and conditions of a batch; NotTsql where BEGIN, END and CASE are not paired."""
    statements = (" ".join(piece) for piece in _pieces(words(TRIGGER.sub("", batch.lstrip()))))
    return [part for text in statements if text for part in _known_forms(text)]


def _known_forms(statement: str) -> list[str]:
    if quoted := QUOTED_BATCH.fullmatch(statement):
        return apart(quoted["batch"].replace("''", "'"))
    if statement.startswith("DECLARE"):
        return [re.sub(r"(?<=PRIMARY KEY) (?:NON)?CLUSTERED\b", "", statement)]
    if statement.startswith(("UPDATE", "DELETE")):
        statement = OPTION.sub("", statement)
    found = None if statement.startswith("EXEC") else OUTPUT.search(statement)
    if found is None:
        return [statement]
    return [statement[: found.start()] + statement[found.end() :], f"SELECT {found['columns']}"]


def _pieces(found: list[Word]) -> Iterator[list[str]]:
    piece: list[str] = []
    blocks: list[str] = []
    depth = 0
    for word, following in zip(found, [*found[1:], Word("other", ";")], strict=True):
        depth += {"(": 1, ")": -1}.get(word.text, 0)
        role = _role(word, following, blocks, is_inside=depth > 0, in_condition=piece[:1] == [CONDITION])
        if role == "part":
            piece.append(_spelled(word, following))
            continue
        yield piece
        piece = {"condition": [CONDITION], "first": [_spelled(word, following)]}.get(role, [])
    if blocks or depth:
        raise NotTsql(f"{blocks[-1]} without END" if blocks else "a parenthesis without the other")
    yield piece


def _role(word: Word, following: Word, blocks: list[str], *, is_inside: bool, in_condition: bool) -> str:
    """part: of the statement under way; first: of the next one; condition: one begins; between: of no statement."""
    upper = word.upper
    if upper == "CASE" or (upper == "BEGIN" and not following.upper.startswith("TRAN")):
        blocks.append(upper)
        return "part" if upper == "CASE" else "between"
    if upper == "END":
        if not blocks:
            raise NotTsql("END without BEGIN")
        return "part" if blocks.pop() == "CASE" else "between"
    if is_inside or blocks[-1:] == ["CASE"]:
        return "part"
    if upper in BETWEEN:
        return "between"
    if upper in ("IF", "WHILE"):
        return "condition"
    return "first" if in_condition and upper in FIRST_WORDS else "part"


def _spelled(word: Word, following: Word) -> str:
    if word.upper == "THROW":
        return "" if following.text == ";" else "SELECT"
    return "?" if word.kind == "word" and word.text.startswith(":") else word.text
