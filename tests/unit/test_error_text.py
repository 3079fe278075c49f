"""An error as text: bounded, quick to make, and without passwords wherever it is cut."""

from __future__ import annotations

import time

import pytest

from fencehold.runtime.error_text import ERROR_CHARS_MAX, LINE_CHARS_MAX, LOG_CHARS_MAX, in_full, stored


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot even say what it is")


ERRORS = {
    "short": ValueError("no"),
    "long": ValueError("x" * 1_000_000),
    "many lines": ValueError("line\n" * 200_000),
    "nul": ValueError("a\0b"),
    "surrogate": ValueError("a\udcffb"),
    "unshowable": Unshowable(),
    "group": ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
    "syntax": SyntaxError("bad", ("app.py", 7, 3, "x = = 1")),
}


@pytest.mark.parametrize("name", ERRORS)
def test_whatever_was_raised_has_a_text_that_can_be_stored(name: str) -> None:
    error = raised(ERRORS[name])
    text, whole = stored(error), in_full(error)
    assert 0 < len(text) <= ERROR_CHARS_MAX
    assert "in raised" in text
    assert "in raised" in whole or name == "many lines", "of so many lines the last are kept"
    assert len(whole) <= LOG_CHARS_MAX + LINE_CHARS_MAX
    for one in (text, whole):
        assert "\0" not in one
        one.encode("utf-8")


def test_what_an_error_says_and_where_it_was_raised_are_both_in_the_row_however_long_it_is() -> None:
    text = stored(raised(ValueError("start" + "x" * 100_000)))
    assert text.startswith("ValueError: start")
    assert text.endswith("raise error")


@pytest.mark.parametrize("words", ["://a:" * 200_000, "password=" * 200_000, "a:" * 500_000 + "@"])
def test_to_look_for_passwords_in_an_endless_text_takes_no_time(words: str) -> None:
    error = raised(ValueError(words))
    began_s = time.process_time()
    stored(error)
    in_full(error)
    assert time.process_time() - began_s < 2


@pytest.mark.parametrize("before", [0, 500, 970, LINE_CHARS_MAX - 30, LINE_CHARS_MAX - 5, ERROR_CHARS_MAX - 30])
def test_a_password_is_not_shown_where_a_text_is_cut(before: int) -> None:
    error = raised(ValueError("x" * before + " postgresql://me:hunter2hunter2@db/x " + "y" * 200_000))
    assert "hunter2" not in stored(error) + in_full(error)


def test_a_password_is_not_shown_where_the_beginning_of_a_traceback_is_cut() -> None:
    lines = "\n".join(f"postgresql://me:hunter{n}@db/x" for n in range(10_000))
    assert "hunter" not in in_full(raised(ValueError(lines)))
