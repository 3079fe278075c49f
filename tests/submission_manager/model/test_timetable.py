"""What a database chooses from by its own clock is what the rules say at that instant, whatever instant it is."""

import datetime as dt
import itertools

import pytest

from submission_manager.model.contracts import Contract, GatewayType, Policy
from submission_manager.model.outcomes import Answer, Case, Outcome, judge, timetable

CREATED = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
OUTCOMES = (
    Outcome(Answer.ACCEPTED),
    Outcome(Answer.REJECTED, "no"),
    Outcome(Answer.REJECTED, "other"),
    Outcome(Answer.ERROR),
)
STEP = dt.timedelta(microseconds=1)


def contract(policy: Policy) -> Contract:
    seconds, attempts = 30 if policy is Policy.DEADLINE else None, 2 if policy is Policy.MAX_ATTEMPTS else None
    return Contract("t", GatewayType.SMS, "http://g", policy, ("no",), seconds, attempts)


@pytest.mark.parametrize(("policy", "outcome"), list(itertools.product(Policy, OUTCOMES)))
@pytest.mark.parametrize("retry_delay_s", [0.0, 5.0, 29.999_999, 100.0])
def test_the_last_verdict_that_has_begun_is_the_rules_own(policy, outcome, retry_delay_s):
    turns = [CREATED + dt.timedelta(seconds=seconds) for seconds in (0, 30 - retry_delay_s, 30, 3600)]
    for number, at in itertools.product((1, 2), (turn + step for turn in turns for step in (-STEP, 0 * STEP, STEP))):
        case = Case(contract(policy), outcome, number, CREATED, at, retry_delay_s)
        begun = [verdict for begins, verdict in timetable(case) if begins <= at]
        judged = judge(case)
        assert (begun[-1].status, begun[-1].exhausted_reason) == (judged.status, judged.exhausted_reason)
