"""Tests that names of leases and holders come back unchanged and are never mixed up.

A name that cannot be stored is refused before it is sent.
"""

from __future__ import annotations

import pytest

from fencehold.model import names
from fencehold.model.election.rules import TermKey
from fencehold.ports.backend import Backend
from fencehold.testing.conformance.leases.fences import is_let_in
from fencehold.testing.conformance.suite import LEASE_S, LeaseTests, granted, refused_with, release, renew, row, take
from fencehold.testing.harness import CALL_LIMIT_S, Harness

LOOK_ALIKES = (
    "nightly", "Nightly", "NIGHTLY", "nightly1", "night ly", "night  ly", "night\u00a0ly", "nightly.", "-nightly",
    "caf\u00e9", "cafe\u0301", "cafe", "stra\u00dfe", "strasse", "\u0131", "i", "I", "\u0130", "\ufb01", "fi",
    "\u212a", "K", "k", "\u5341", "\U0001f98a", "\U0001f98a\ufe0f", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", "a\u200eb", "a\u200fb", "ab",
)  # fmt: skip

AWKWARD = (
    "a/b", "a\\b", "a?b", "a#b", "a%b", "%", "%s", "%(name)s", "%%", ":name", "a:b", "$1", "?", "?1", "@p1", "'", "''",
    '"', "`", ";", "--", "/* */", "'; DROP TABLE fencehold_leases; --", "{x}", "[x]", "a_b", "a*b", "\\", "\\'", "0",
    "NULL", "null", "true", "..", ".", "~", "a,b", "(a)", "{a,b}", "a\u2028b",
)  # fmt: skip

REFUSED = (
    "", " ", " a", "a ", "a\u00a0", "\u2003a", "a\tb", "a\nb", "a\r", "a\x00b", "\x7f", "a\x1bb", "\ud800", "a\udfffb",
    "x" * 65, "\U0001f98a" * 65, None, 7, b"bytes",
)  # fmt: skip


class Names(LeaseTests):
    @pytest.mark.parametrize("group", [LOOK_ALIKES, AWKWARD], ids=["look-alikes", "awkward"])
    async def test_names_are_kept_apart_and_come_back_unchanged(self, backend: Backend, group: tuple[str, ...]) -> None:
        keys = [await take(backend, names.lease_name(name), f"holder of {name}", nonce=name) for name in group]
        assert [(key.name, key.epoch) for key in keys] == [(name, 1) for name in group]
        answers = await backend.leases.renew(keys, CALL_LIMIT_S)
        assert [granted(answer).holder_id for answer in answers] == [f"holder of {name}" for name in group]
        found = await backend.leases.read(group, CALL_LIMIT_S)
        assert {name: lease.holder_id for name, lease in found.items()} == {n: f"holder of {n}" for n in group}
        assert [lease.name for lease in await backend.leases.list("", CALL_LIMIT_S)] == sorted(group)

    @pytest.mark.parametrize("group", [LOOK_ALIKES, AWKWARD], ids=["look-alikes", "awkward"])
    async def test_holders_are_kept_apart(self, backend: Backend, group: tuple[str, ...]) -> None:
        key = await take(backend, "job", names.holder_id(group[0]))
        for other in group[1:]:
            names.holder_id(other)
            answer = await renew(backend, TermKey("job", other, key.epoch, LEASE_S))
            assert not hasattr(answer, "epoch"), f"{other!r} renewed the lease of {group[0]!r}"
        granted(await release(backend, key))

    @pytest.mark.parametrize("letter", ["x", "\u00e9", "\u5341", "\U0001f98a"], ids=["ascii", "latin", "cjk", "emoji"])
    async def test_the_longest_name_and_holder_fit(self, harness: Harness, backend: Backend, letter: str) -> None:
        name = names.lease_name(letter * names.LEASE_NAME_CHARS_MAX)
        holder = names.holder_id(letter * names.HOLDER_ID_CHARS_MAX)
        key = await take(backend, name, holder, nonce="n" * 64)
        granted(await renew(backend, key))
        found = await row(backend, name)
        assert (found.name, found.holder_id, found.nonce) == (name, holder, "n" * 64)
        await is_let_in(harness, backend, key)
        granted(await release(backend, key))

    async def test_a_prefix_means_itself(self, backend: Backend) -> None:
        everything = sorted({*LOOK_ALIKES, *AWKWARD})
        for name in everything:
            await take(backend, name, "ada")
        for prefix in ("%", "_", "'", "\\", "caf\u00e9", "\U0001f98a", "a", "never"):
            found = [lease.name for lease in await backend.leases.list(prefix, CALL_LIMIT_S)]
            assert found == [name for name in everything if name.startswith(prefix)]

    @pytest.mark.parametrize("name", REFUSED, ids=repr)
    def test_what_cannot_be_stored_is_refused_before_it_is_sent(self, name: object) -> None:
        with refused_with("bad_name"):
            names.lease_name(name)
