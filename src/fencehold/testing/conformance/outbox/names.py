"""Tests that event types, aggregates, tokens and payloads come back unchanged and are never mixed up."""

from __future__ import annotations

from typing import Any

import pytest

from fencehold.model.outbox.new_events import AGGREGATE_CHARS_MAX, EVENT_TYPE_CHARS_MAX
from fencehold.ports.events import Failure, Filter
from fencehold.testing.conformance.leases.names import AWKWARD, LOOK_ALIKES
from fencehold.testing.conformance.outbox.pair import EVERYTHING, EventTests, Pair, ask, event
from fencehold.testing.conformance.suite import refused_with
from fencehold.testing.harness import CALL_LIMIT_S

ODD = tuple(name for name in (*LOOK_ALIKES, *AWKWARD) if name.isprintable())
#: Each is six characters or more; none of these is NUL, though JSON writes NUL in nearly the same way.
LOOKS_LIKE_NUL = (r"\u0000", r"a\u0000b\\u0000\\\u0000", "\\" * 7 + "u0000")
PAYLOADS: tuple[Any, ...] = (
    *LOOKS_LIKE_NUL, {LOOKS_LIKE_NUL[0]: [LOOKS_LIKE_NUL[1]]},
    None, {}, [], "", 0, -1.5e300, 2**70, True, "x" * 100_000,
    {"a": {"b": [1, None, "\u00e9\U0001f98a\u2028'\"\\%s:x"]}}
)  # fmt: skip
REFUSED_TYPES = ("", "a\tb", "a\nb", "a\x00b", "\ud800", "x" * (EVENT_TYPE_CHARS_MAX + 1), None, 7, b"bytes")


class EventNames(EventTests):
    async def test_event_types_are_kept_apart_and_come_back_unchanged(self, pair: Pair) -> None:
        ids = await pair.add(*(event(name) for name in ODD))
        for event_id, name in list(zip(ids, ODD, strict=True))[::5]:
            rows = await pair.client.admin.find(Filter(event_types=(name,)), EVERYTHING, CALL_LIMIT_S)
            assert [(row.id, row.event_type) for row in rows] == [(event_id, name)]
        assert await pair.claim(ask("some", event_types=ODD[::2])) == ids[::2]
        assert await pair.claim(ask("the rest")) == ids[1::2]

    async def test_aggregates_are_kept_apart(self, pair: Pair) -> None:
        ids = await pair.add(*(event(aggregate_id=name, aggregate_type=name) for name in ODD))
        assert await pair.claim(ask("all", in_order=True)) == ids

    async def test_tokens_and_errors_are_kept_as_they_are(self, pair: Pair) -> None:
        ids = await pair.add(*(event(name) for name in ODD[::16]))
        for event_id, name in zip(ids, ODD[::16], strict=True):
            await pair.claim(ask(name, event_types=(name,)))
            await pair.fail(Failure(pair.key(event_id, f"{name}."), "another's", 1.0))
            await pair.fail(Failure(pair.key(event_id, name), f"{name}\n\t{name}", 1.0))

    async def test_payloads_and_metadata_come_back_as_they_were_added(self, pair: Pair) -> None:
        made = [event(payload={"value": value}, metadata={"value": value}) for value in PAYLOADS]
        await pair.add(*made)
        turn = await pair.client.port.turn([], ask("a"), CALL_LIMIT_S)
        assert [one.payload["value"] for one in turn.claims] == list(PAYLOADS)
        assert [one.metadata["value"] for one in turn.claims] == list(PAYLOADS)

    async def test_the_longest_names_fit(self, pair: Pair) -> None:
        for letter in ("x", "\u5341", "\U0001f98a"):
            longest, aggregate = letter * EVENT_TYPE_CHARS_MAX, letter * AGGREGATE_CHARS_MAX
            [event_id] = await pair.add(event(longest, aggregate_id=aggregate, aggregate_type=aggregate))
            assert await pair.claim(ask(letter * 128, event_types=(longest,))) == [event_id]

    @pytest.mark.parametrize("name", REFUSED_TYPES, ids=repr)
    def test_what_cannot_be_stored_is_refused_before_it_is_sent(self, name: object) -> None:
        with refused_with("bad_event"):
            event(name)  # type: ignore[arg-type]
