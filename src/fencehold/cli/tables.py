"""Prints rows on a terminal: as a table if it fits, else one line for each field.

No word is ever broken, because people copy ids.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

FRAME_CHARS = 3  # per column, and one more at the end
STYLES = {
    "live": "green", "expired": "yellow",
    "ok": "green", "warning": "yellow", "error": "bold white on red",
    "PROCESSING": "cyan", "COMPLETED": "green", "FAILED": "yellow", "DEAD_LETTER": "bold red",
}  # fmt: skip

Rows = Sequence[Sequence[str]]


def show(console: Console, columns: Sequence[str], rows: Rows, spare: Sequence[str] = ()) -> None:
    """Print to a terminal of any width; leaves out `spare` columns, in their order, where that saves lines."""
    several = [_without(spare[:count], columns, rows) for count in range(len(spare) + 1)]
    on_one_line = (few for few in several if _is_on_one_line(few, console.width))
    with_all_columns = (few for few in several[:1] if _fits(few, console.width))
    on_several_lines = (few for few in reversed(several) if _fits(few, console.width))
    for few in (*on_one_line, *with_all_columns, *on_several_lines):
        console.print(_table(few[0], few[1:], fitted(few, _room(console.width, few[0]))))
        if left_out := [column for column in columns if column not in few[0]]:
            console.print(f"not shown at this width: {', '.join(left_out)}", soft_wrap=True)
        return
    for number, row in enumerate(rows):
        if number:
            console.print()
        for line in _fields(columns, row, console.width):
            console.print(line, soft_wrap=True)  # the terminal breaks a word that is too long for it


def show_fields(console: Console, fields: Rows) -> None:
    """Print one line for each field; a long value continues below its own start."""
    for line in _fields([field[0] for field in fields], [field[1] for field in fields], console.width):
        console.print(line, soft_wrap=True)


def _without(left_out: Sequence[str], columns: Sequence[str], rows: Rows) -> Rows:
    """Return the names of the remaining columns as the first row, then the rows without the columns left out."""
    kept = [n for n, column in enumerate(columns) if column not in left_out]
    return [[row[n] for n in kept] for row in (columns, *rows)]


def _fits(rows: Rows, width: int) -> bool:
    return bool(fitted(rows, _room(width, rows[0])))


def _room(width: int, columns: Sequence[str]) -> int:
    return width - FRAME_CHARS * len(columns) - 1


def _is_on_one_line(rows: Rows, width: int) -> bool:
    return sum(max(map(cell_len, column)) for column in zip(*rows, strict=True)) <= _room(width, rows[0])


def fitted(rows: Rows, room: int) -> list[int]:
    """Return the width of each column so that no word is broken; empty if there is not enough room."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    least = [max(cell_len(word) for cell in column for word in (*cell.split(), "")) for column in columns]
    if sum(least) > room:
        return []
    while sum(widths) > room:
        spare = [width - needed for width, needed in zip(widths, least, strict=True)]
        widths[spare.index(max(spare))] -= 1
    return widths


def _table(columns: Sequence[str], rows: Rows, widths: Sequence[int]) -> Table:
    table = Table(header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, width=width, overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _fields(columns: Sequence[str], row: Sequence[str], room: int) -> list[Text]:
    label = max(map(len, columns)) + 2
    lines: list[Text] = []
    for column, cell in zip(columns, row, strict=True):
        wrapped = textwrap.wrap(cell, max(1, room - label), break_long_words=False, break_on_hyphens=False) or [""]
        for number, part in enumerate(wrapped):
            head = Text(("" if number else column).ljust(label), style="bold")
            lines.append(head.append(Text(part, style=STYLES.get(cell, "not bold"))))
    return lines


def _text(cell: str) -> Text:
    return Text(cell, style=STYLES.get(cell, ""))
