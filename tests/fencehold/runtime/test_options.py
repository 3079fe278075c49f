"""Keyword arguments that are passed on have the names and types of the call that takes them in the end."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import fencehold
from fencehold import sync
from fencehold.runtime import options
from pgleaderlock.lock import LeaderLock, LockOptions


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword arguments of a call, each with its type."""
    found = inspect.signature(function).parameters.values()
    hints = get_type_hints(function)
    return {one.name: hints[one.name] for one in found if one.kind is inspect.Parameter.KEYWORD_ONLY}


TAKEN = [
    (options.ConnectOptions, fencehold.connect, ()),
    (options.LeaderOptions, fencehold.Store.leader, ()),
    (options.SeekOptions, fencehold.Store.leader, ("lease",)),
    (options.OutboxOptions, fencehold.Store.outbox, ()),
    (options.ItemsOptions, fencehold.Store.items, ()),
    (options.AddOptions, fencehold.Outbox.add, ("tx",)),
    (options.RedriveOptions, fencehold.Outbox.redrive, ()),
    (options.RetryOptions, fencehold.Outbox.retry, ()),
    (options.PurgeOptions, fencehold.Outbox.purge, ()),
    (options.WorkerOptions, fencehold.Outbox.worker, ("batch_size",)),
    (options.ProcessOptions, fencehold.Items.process, ()),
    (LockOptions, LeaderLock, ()),
]


@pytest.mark.parametrize(("named", "call", "but_for"), TAKEN, ids=lambda one: getattr(one, "__name__", ""))
def test_options_are_those_of_the_call(named: type, call: Callable[..., Any], but_for: tuple[str, ...]) -> None:
    taken = keywords(call.__init__ if inspect.isclass(call) else call)
    assert get_type_hints(named) == {name: kind for name, kind in taken.items() if name not in but_for}


@pytest.mark.parametrize(
    ("named", "call"),
    [
        (options.SyncJobOptions, sync.Store.run_as_leader),
    ],
)
def test_the_options_of_a_job_are_its_own_and_those_of_a_leader(named: type, call: Callable[..., Any]) -> None:
    assert get_type_hints(named) == keywords(call) | get_type_hints(options.SeekOptions)
