"""An error as text: bounded, quick to make, and without passwords wherever it is cut."""

from __future__ import annotations

import time

import pytest

from fencehold.runtime.handlers.error_text import (
    ERROR_CHARS_MAX,
    LINE_CHARS_MAX,
    LOG_CHARS_MAX,
    described,
    in_full,
    stored,
)
from fencehold.runtime.handlers.handlers import Reject


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


SECRETS = {
    "odbc, braces": "Driver={ODBC 18};UID=sa;PWD={hunter;2}}hunter};Encrypt=yes",
    "odbc, braces and blanks": "PWD={hunter;2 hunter}} hunter} failed",
    "odbc, braces cut off": "UID=sa;PWD={hunter;2 hunter",
    "odbc, a quote inside": 'Server=x;PWD=ab"hunter;Database=y',
    "odbc, an apostrophe inside": "Server=x;Password=it's hunter;Database=y",
    "odbc, blanks": "UID=sa;PWD=hunter 2 hunter;Encrypt=yes",
    "libpq, quoted": r"host=db password='hunter2 \' hunter' user=me",
    "libpq, cut off": "host=db password='hunter2 hunter",
    "libpq, escaped": r"host=db password=hunter2\ hunter user=me",
    "libpq, semicolon": "host=db password=hunter2;hunter&hunter user=me",
    "double quotes": 'password="hunter2 hunter";Encrypt=yes',
    "in a repr": r"DSN \'password=\'hunter2 hunter\' host=db\'",
    "environment": "PGPASSWORD=hunter2",
    "cosmos": "AccountEndpoint=https://db.example:443/;AccountKey=hunter/+2==;",
    "url": "postgresql://me:hunter:/@hunter@db/x",
    "url, user with @": "postgresql://me@corp:hunter2@db/x",
    "url, blanks": "postgresql://me:hunter2 hunter@db/x",
    "url, query": "postgresql://db/x?password=hunter2&sslmode=require",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_password_is_hidden_as_a_whole_however_it_is_quoted(name: str) -> None:
    error = raised(ValueError(f"could not connect: {SECRETS[name]}"))
    assert "hunter" not in stored(error) + in_full(error)
    assert "could not connect: " in stored(error)


@pytest.mark.parametrize(
    "words",
    [
        "UID=sa;PWD={a;b}}c};Encrypt=yes", "host=db password='a b' user=me", "postgresql://db/x?password=a&sslmode=require",
        "AccountEndpoint=https://db:443/;AccountKey=a==;Version=1", "postgresql://me:a/b@db/x",
    ],
)  # fmt: skip
def test_what_stands_around_a_password_is_shown(words: str) -> None:
    shown = stored(ValueError(words))
    assert shown.count("***") == 1
    assert all(word in shown for word in ("db", "sslmode", "user=me", "UID", "Encrypt", "Version") if word in words)


@pytest.mark.parametrize("words", ["http://db:8080/x failed, ask ops@corp", "sqlite://x: no such file, ask ops@corp"])
def test_what_is_no_password_is_shown(words: str) -> None:
    assert stored(ValueError(words)) == f"ValueError: {words}"


def test_a_rejection_is_said_once() -> None:
    assert described(Reject("the order is cancelled")) == "Reject: the order is cancelled"
