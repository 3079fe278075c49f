"""One class is the whole suite: what applies is in it, what does not is not collected, and why is known."""

import inspect
from dataclasses import replace

import pytest

from fencehold.testing import conformance
from fencehold.testing.conformance.classes import parts
from fencehold.testing.harness import Can
from tests.examples.json_file_harness import JsonFileHarness
from tests.fencehold.testing.conformance.memory_harness import MemoryHarness
from tests.fencehold.testing.conformance.postgres_harness import NEWEST_ONLY, PostgresHarness
from tests.fencehold.testing.conformance.sqlite_harness import SqliteHarness

IN_SQLITE = "Fences.test_who_does_not_hold_it_is_refused"


def inside(suite: type[conformance.Suite]) -> set[str]:
    return {name.removeprefix("Test") for name in vars(suite) if name.startswith("Test")}


def test_every_class_is_in_the_suite_or_is_not_collected_for_a_reason():
    class Here(conformance.Suite, harness=SqliteHarness): ...

    outside = {name for name in Here.not_collected if "." not in name}
    assert inside(Here) | outside | {"Suite"} == {*conformance.__all__}
    assert not inside(Here) & outside
    assert Here.not_collected["Wakeups"] == "needs hints of changed leases"
    assert Here.not_collected["WaitingWriter"] == f"needs {Can.ROW_LOCKS.value}"


def test_a_store_of_leases_alone_has_every_class_that_leases_alone_can_pass():
    class Here(conformance.Suite, harness=JsonFileHarness): ...

    assert inside(Here) == {
        "Rules", "Verbs", "Absences", "Silence", "Walk", "Crowd", "ProcessCrowd", "Obstruction", "Names", "Times",
    }  # fmt: skip


def test_a_single_test_that_does_not_apply_is_left_out_of_its_class():
    class Here(conformance.Suite, harness=JsonFileHarness): ...

    name = "test_the_local_limit_is_honoured_whatever_the_store_says"
    assert getattr(Here, "TestTimes").__dict__[name] is None  # noqa: B009 - made at run time
    assert Here.not_collected[f"Times.{name}"] == "needs fenced transactions"
    assert callable(getattr(conformance.Times, name)), "others have it still"


def test_a_class_in_the_body_takes_the_place_of_the_suites():
    class Here(conformance.Suite, harness=MemoryHarness, limit_s=7.0):
        @pytest.mark.limit(9)
        class TestWalk(conformance.Walk):
            test_limit_s = 8.0

    walk, names = Here.TestWalk, getattr(Here, "TestNames")  # noqa: B009 - made at run time
    assert [mark.name for mark in walk.pytestmark] == ["limit"]  # type: ignore[attr-defined]
    assert (walk.test_limit_s, names.test_limit_s, conformance.Names.test_limit_s) == (8.0, 7.0, 55.0)


def test_two_entries_share_the_suite_and_lose_nothing():
    class One(conformance.Suite, harness=PostgresHarness, leave_out=dict.fromkeys(NEWEST_ONLY, "is in Two")): ...

    class Two(conformance.Suite, harness=PostgresHarness, only=NEWEST_ONLY): ...

    class Whole(conformance.Suite, harness=PostgresHarness): ...

    assert inside(One) | inside(Two) == inside(Whole)
    assert inside(Two) == {*NEWEST_ONLY}
    assert One.not_collected["EventNames"] == "is in Two"


@pytest.mark.parametrize(
    ("left_out", "why"),
    [
        ("Wlak", "is no part of the suite"),
        ("Walk.test_nothing", "is no part of the suite"),
        ("Wakeups", "needs hints of changed leases"),
    ],
)
def test_a_name_that_leaves_nothing_out_is_a_mistake(left_out: str, why: str):
    with pytest.raises(TypeError, match=f"Here: {left_out} {why}"):

        class Here(conformance.Suite, harness=SqliteHarness, leave_out={IN_SQLITE: "slow", left_out: "slow"}): ...


def test_a_class_in_the_body_that_does_not_apply_is_a_mistake():
    with pytest.raises(TypeError, match="Here: NetworkFaults needs a network to break"):

        class Here(conformance.Suite, harness=SqliteHarness):
            class TestNetworkFaults(conformance.NetworkFaults): ...


def test_a_test_that_needs_a_fence_says_so():
    """Else a store of leases alone would fail it. What the body asks `harness.can`, it may leave out."""
    for tests in conformance.classes.CLASSES:
        for name, part in parts(tests):
            body = inspect.getsource(inspect.unwrap(part)) if "." in name else ""  # type: ignore[arg-type]
            if any(word in body for word in (".fences.", "fenced(", " is_refused(")) and "harness.can(" not in body:
                declared = {*getattr(tests, "needs", ()), *getattr(part, "needs", ()), *getattr(part, "unless", ())}
                assert Can.FENCES in declared, name


class Undeclared(MemoryHarness):
    """The memory store has all of these parts."""

    traits = replace(MemoryHarness.traits, can={Can.LEASES})


@pytest.mark.parametrize("name", [name for name, _ in parts(conformance.Absences) if "." in name])
def test_a_part_that_the_harness_does_not_declare_is_found(name: str):
    test = getattr(conformance.Absences(), name.partition(".")[2])  # it runs itself, in a loop of its own
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test(Undeclared())
