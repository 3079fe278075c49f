"""On a terminal no word is broken, whatever its width: a table where it fits, else a line for each field."""

import io

import pytest
from rich.console import Console

from fencehold.cli import tables

ID = "0198c5d2-7c1e-7cc3-9d5e-3f2b8a1c4e77"
COLUMNS = ("TRACKING ID", "TYPE", "STATUS", "TRIES", "AGE", "NOW")
ROW = (
    ID,
    "order.created",
    "DEAD_LETTER",
    "5/5",
    "2.5 h",
    "ConnectionError: the broker at 10.0.0.7 is down, says the client",
)
LONG_HOLDER = "submission-manager-7d9f8b6c4-x2x9q-1-5f0c9a3e"


def shown(width: int, columns: tuple[str, ...], *rows: tuple[str, ...]) -> list[str]:
    out = io.StringIO()
    tables.show(Console(file=out, width=width, force_terminal=False), columns, rows)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
def test_no_word_is_broken_at_any_width(width: int) -> None:
    lines = shown(width, COLUMNS, ROW, ROW)
    assert max(map(len, lines)) <= max(width, len(ID) + 13)
    words = {word for line in lines for word in line.replace("│", " ").replace("┃", " ").split()}
    assert {word for cell in (*COLUMNS, *ROW) for word in cell.split()} <= words


def test_a_table_is_drawn_where_it_fits_and_fields_where_it_does_not() -> None:
    assert shown(120, COLUMNS, ROW)[0].startswith("┏")
    narrow = shown(80, COLUMNS, ROW)
    assert narrow[0].split() == ["TRACKING", "ID", ID]
    assert [line.split()[0] for line in narrow if not line.startswith(" ")] == [name.split()[0] for name in COLUMNS]


def test_the_leases_of_usual_names_are_a_table_at_80_columns() -> None:
    columns = ("NAME", "STATE", "HOLDER", "EPOCH", "REMAINING", "EXPIRES (store time)")
    row = ("nightly", "live", "web1-812-5f0c9a3e", "7", "21.4 s", "2026-01-31 02:14:40.012Z")
    assert shown(80, columns, row)[0].startswith("┏")
    assert any(LONG_HOLDER in line for line in shown(80, columns, (*row[:2], LONG_HOLDER, *row[3:])))


def test_only_columns_with_words_to_spare_are_narrowed() -> None:
    assert tables.fitted([("A", "B"), ("whole", "two words")], 20) == [5, 9]
    assert tables.fitted([("A", "B"), ("whole", "two words")], 10) == [5, 5]
    assert tables.fitted([("A", "B"), ("whole", "two words")], 9) == []
