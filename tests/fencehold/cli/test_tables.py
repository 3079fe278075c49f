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


@pytest.mark.parametrize("width", [60, 80, 120])
def test_an_epoch_of_many_digits_stays_one_word(width: int) -> None:
    epoch = "4294000017000003"
    lines = shown(width, ("LEASE", "STATE", "HOLDER", "EPOCH"), ("billing", "live", LONG_HOLDER, epoch))
    assert sum(epoch in line for line in lines) == 1


LEASES = ("NAME", "STATE", "HOLDER", "EPOCH", "REMAINING", "EXPIRES (store time)")


def test_a_lease_of_a_container_is_one_line_at_80_columns_without_its_spare_column() -> None:
    row = ("reports/nightly", "live", "3f2a9c1b7d4e-812-5f0c9a3e", "7", "21.4 s", "2026-01-31 02:14:40Z")
    out = io.StringIO()
    tables.show(Console(file=out, width=80, force_terminal=False), LEASES, [row], spare=LEASES[-1:])
    *table, note = out.getvalue().splitlines()
    assert len(table) == 5, "a frame of three lines, the heads and the lease"
    assert note == "not shown at this width: EXPIRES (store time)"


def test_where_there_is_room_nothing_is_left_out() -> None:
    out = io.StringIO()
    tables.show(Console(file=out, width=200, force_terminal=False), COLUMNS, [ROW], spare=("AGE", "NOW"))
    assert "the broker at 10.0.0.7" in out.getvalue()


def test_the_fields_of_one_thing_are_a_line_each_and_a_long_value_goes_on_below_itself() -> None:
    out = io.StringIO()
    long = " ".join(["ConnectionError"] * 8)
    tables.show_fields(Console(file=out, width=80), [("tracking id", ID), ("status", "FAILED"), ("last error", long)])
    first, second, third, *more = out.getvalue().splitlines()
    assert (first, second) == (f"tracking id  {ID}", "status       FAILED")
    assert third.startswith("last error   Conn")
    assert [line[:14] for line in more] == [" " * 13 + "C"]
