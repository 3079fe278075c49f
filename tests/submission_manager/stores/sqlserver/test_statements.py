"""What no test can bring about at the right moment is read off SQL Server's statements themselves."""

import re

import pytest

from tests.submission_manager.stores.scene import statements

WRITES = ("UPDATE ", "INSERT INTO submission_attempts")
STATEMENTS = statements("mssql://")


@pytest.mark.parametrize("name", ["horizon", "refresh"])
def test_the_lowest_active_version_is_asked_for_before_anything_is_read_and_in_a_statement_of_its_own(name):
    asked, *rest = [one for one in STATEMENTS.named(name).split(";") if re.search("MIN_ACTIVE|submission_intents", one)]
    assert asked.strip() == "DECLARE @active binary(8) = MIN_ACTIVE_ROWVERSION()"
    assert rest
    assert not any("MIN_ACTIVE" in one for one in rest)


@pytest.mark.parametrize("name", ["horizon", "pending", "refresh"])
def test_the_schedule_passes_no_row_over(name):
    assert not re.search("READPAST|NOLOCK|UNCOMMITTED", STATEMENTS.named(name))


@pytest.mark.parametrize("name", ["mark", "settle", "expire", "told"])
def test_the_fence_comes_first_and_the_clock_after_the_row(name):
    text = STATEMENTS.named(name)
    places = [
        text.index(part)
        for part in (
            "BEGIN TRANSACTION", "sp_getapplock @Resource = @fence", "expires_at > SYSUTCDATETIME()", "WITH (UPDLOCK",
            "SET @now = SYSUTCDATETIME()", "COMMIT TRANSACTION",
        )
    ]  # fmt: skip
    assert places == sorted(places)
    assert places[4] < min(text.index(word) for word in WRITES if word in text)
