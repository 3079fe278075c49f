"""What is printed is aligned, harmless to a terminal and free of passwords."""

import pytest

from fencehold.cli import exit_codes, screen
from fencehold.model.errors import AlreadyLeased, ConfigurationError, LeaseLost, Unavailable, Uncertain
from fencehold.telemetry.logs import escaped


def test_columns_are_aligned_by_the_width_a_terminal_gives():
    text = screen.aligned([("NAME", "EPOCH"), ("日本", "1"), ("a", "22")])
    assert text.splitlines() == ["NAME  EPOCH", "日本  1", "a     22"]


def test_characters_that_steer_a_terminal_are_shown_not_sent():
    assert screen.clean("a\x1b[31m\x07\u202e") == "a\\x1b[31m\\x07\\x202e"


@pytest.mark.parametrize("shown", ["p w:/x", "p%20w:/x"])
def test_a_known_password_is_replaced_however_a_driver_spells_it(shown, monkeypatch):
    monkeypatch.setattr(screen, "_secrets", set())
    screen.keep_secret("postgresql://app:p%20w:/x@host/db".replace(":/x", "%3A%2Fx"))
    screen.keep_secret("postgresql://app:p%20w@host/db")
    assert "p w" not in screen.clean(f"cannot log in with {shown}")
    assert "p%20w" not in screen.clean(f"cannot log in with {shown}")


def test_a_known_password_is_replaced_also_where_a_log_line_has_escaped_it(monkeypatch):
    monkeypatch.setattr(screen, "_secrets", set())
    screen.keep_secret("postgresql://app:hun%22ter%5C2@host/db")
    line = 'leader_lost error="' + escaped('cannot log in with hun"ter\\2') + '"'
    assert screen.clean(line) == 'leader_lost error="cannot log in with ***"'


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), 78),
        (Unavailable("x"), 69),
        (Uncertain("x"), 69),
        (LeaseLost("x"), 79),
        (AlreadyLeased("x", holder_id="h", expires_at=None), 75),
        (exit_codes.Refused("x", code="no", exit_code=1), 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error, code):
    assert exit_codes.of_error(error) == code
