"""What may be said, and what it means; the rest is refused in one coded error that says which setting is wrong."""

import datetime as dt
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencehold.model import durations, names
from fencehold.model.errors import ConfigurationError


def refusal(call: object, *args: object) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        call(*args)  # type: ignore[operator]
    return caught.value


@pytest.mark.parametrize("check", [names.lease_name, names.holder_id])
@pytest.mark.parametrize("name", ["a", "a b", "a/b", "\u5341", "\U0001f98a", "e\u0301", "%s", "'; --", "a\u200db"])
def test_a_name_comes_back_as_it_was_given(check, name: str):
    assert check(name) is name


@pytest.mark.parametrize("check", [names.lease_name, names.holder_id])
@pytest.mark.parametrize(
    "name", ["", " ", " a", "a ", "\u00a0a", "a\u2003", "a\tb", "a\n", "\x00", "a\x7f", "\ud83e", None, 5, b"a", ["a"]],
    ids=repr,
)  # fmt: skip
def test_a_name_that_a_database_would_change_is_refused(check, name: object):
    assert refusal(check, name).code == "bad_name"


@pytest.mark.parametrize(
    ("check", "longest"),
    [(names.lease_name, names.LEASE_NAME_CHARS_MAX), (names.holder_id, names.HOLDER_ID_CHARS_MAX)],
)
def test_length_is_counted_in_characters(check, longest: int):
    for letter in ("x", "\u00e9", "\U0001f98a"):
        assert check(letter * longest) == letter * longest
        assert str(longest) in refusal(check, letter * (longest + 1)).message


def test_a_refused_name_is_shown_shortened():
    assert len(refusal(names.lease_name, "x" * 10_000).message) < 250


@given(st.text())
def test_a_name_is_either_refused_or_unchanged(name: str):
    try:
        assert names.lease_name(name) == name
    except ConfigurationError:
        return
    assert 1 <= len(name) <= 64
    assert name == name.strip()
    assert "\x00" not in name
    name.encode("utf-8")


@pytest.mark.parametrize(
    "name", ["leases", "fencehold_leases", "submission_manager_leases", "_x1", "app.leases", "t" * 48]
)
def test_a_table_name_that_every_dialect_takes(name: str):
    assert names.table_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "Leases", "1a", "a-b", "a b", 'a"b', "a;b", "a.b.c", ".a", "a.", "t" * 49, "\u00e9", "a\n", None, 7],
    ids=repr,
)  # fmt: skip
def test_a_table_name_that_could_carry_sql_or_be_cut_is_refused(name: object):
    assert refusal(names.table_name, name).code == "bad_name"


@pytest.mark.parametrize(
    ("name", "whose"),
    [("sqlite_x", "SQLite"), ("app.sqlite_x", "SQLite"), ("pg_temp.leases", "PostgreSQL"),
     ("pg_x.leases", "PostgreSQL"), ("information_schema.leases", "information_schema"), ("sys.leases", "sys")],
)  # fmt: skip
def test_a_table_name_that_a_database_keeps_for_itself_is_refused(name: str, whose: str):
    refused = refusal(names.table_name, name)
    assert (refused.code, whose in refused.message) == ("bad_name", True)


@pytest.mark.parametrize("name", ["pg_outbox", "system.leases", "app.pg_leases", "my_sqlite_x"])
def test_a_table_name_that_only_looks_like_one_of_those_is_taken(name: str):
    assert names.table_name(name) == name


@pytest.mark.parametrize("host", ["web-1", "h" * 300, "\x00\x07", "\u00fcber", ""])
def test_the_default_holder_is_always_a_good_name_and_never_the_same(host: str):
    with mock.patch("socket.gethostname", return_value=host):
        given = {names.default_holder_id() for _ in range(20)}
    assert len(given) == 20
    for holder in given:
        assert names.holder_id(holder) == holder


@pytest.mark.parametrize(
    ("value", "expected_s"),
    [(30, 30.0), (0.5, 0.5), ("30", 30.0), ("30s", 30.0), ("5m", 300.0), ("1.5h", 5400.0), ("250ms", 0.25),
     ("2d", 172800.0), (" 7 s ", 7.0), (".5s", 0.5), (dt.timedelta(minutes=1, milliseconds=5), 60.005),
     (durations.DURATION_S_MAX, 31536000.0)],
    ids=str,
)  # fmt: skip
def test_durations_read_as_people_write_them(value: durations.Duration, expected_s: float):
    assert durations.seconds(value) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    "value",
    [0, -1, -0.0, "0s", "-5s", "5 parsecs", "", "s", "1e3", "5S", "5 m 3 s", "\u0665s", float("nan"), float("inf"),
     True, None, [], dt.timedelta(0), dt.timedelta(seconds=-1), durations.DURATION_S_MAX * 1.01, "400d", 10**400],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_anything_else_is_refused_and_the_setting_named(value: object):
    error = refusal(durations.seconds, value, "renew_every")
    assert error.code == "bad_duration"
    assert "renew_every" in error.message


@given(st.floats(min_value=0.001, max_value=86400.0))
def test_a_number_and_its_text_mean_the_same(number: float):
    assert durations.seconds(f"{number:f}s") == pytest.approx(durations.seconds(round(number, 6)), abs=1e-6)
