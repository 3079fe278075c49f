"""The demo's counts are not zero by construction: planted violations are counted."""

from fencehold.cli.demo.command import Verdict, Written, verdict
from fencehold.verify.journal import Journal, Said


def term(worker: str, epoch: int, start_s: float, until_s: float, ended_s: float | None = None) -> list[Said]:
    term = {"name": "demo", "epoch": epoch}
    lines = [
        Said(worker, "acquired", start_s, term),
        Said(worker, "granted", start_s, {**term, "store_s": start_s}),
        Said(worker, "trusts", start_s, {**term, "until_s": until_s}),
    ]
    return [*lines, *([Said(worker, "ended", ended_s, term)] if ended_s is not None else [])]


def judged(said: list[Said], rows: list[Written], died_s: dict[str, float]) -> Verdict:
    return verdict(Journal(said=said, died_s=died_s), rows)


def rows(*writes: tuple[str, int, str]) -> list[Written]:
    return [Written(number, *write) for number, write in enumerate(writes, 1)]


GOOD = rows(("ada", 1, "write 1"), ("ben", 2, "write 1"))


def test_terms_one_after_another_and_writes_in_order_are_good():
    result = judged([*term("ada", 1, 0, 2), *term("ben", 2, 2.5, 4)], GOOD, {})
    assert result == Verdict(2, 0, 0)
    assert result.is_good


def test_a_write_of_an_older_epoch_after_a_newer_one_is_counted():
    late = [*GOOD, Written(3, "ada", 1, "write 2")]
    result = judged([*term("ada", 1, 0, 2), *term("ben", 2, 2.5, 4)], late, {})
    assert result == Verdict(3, 1, 0)
    assert not result.is_good


def test_a_late_write_counts_even_before_the_successor_wrote():
    result = judged(term("ada", 1, 0, 2), rows(("ada", 1, "late write")), {})
    assert result == Verdict(1, 1, 0)


def test_a_write_with_an_epoch_that_nobody_was_granted_is_counted():
    assert judged(term("ada", 1, 0, 2), GOOD, {}) == Verdict(2, 1, 0)


def test_two_terms_that_overlap_are_counted():
    assert judged([*term("ada", 1, 0, 3), *term("ben", 2, 2.5, 4)], GOOD, {}) == Verdict(2, 0, 1)


def test_a_term_ends_with_its_own_word_its_deadline_or_its_holders_death():
    ben = term("ben", 2, 2.5, 4)
    assert judged([*term("ada", 1, 0, 3, ended_s=2.4), *ben], GOOD, {}).is_good
    assert judged([*term("ada", 1, 0, 2, ended_s=9.0), *ben], GOOD, {}).is_good
    assert judged([*term("ada", 1, 0, 3), *ben], GOOD, {"ada": 2.4}).is_good
    assert not judged([*term("ada", 1, 0, 3, ended_s=2.6), *ben], GOOD, {"ada": 2.6}).is_good


def test_a_run_without_writes_proves_nothing():
    assert not judged(term("ada", 1, 0, 2), [], {}).is_good
