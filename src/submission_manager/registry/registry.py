"""The registry file: the targets and the contract of each. Read at startup, checked as a whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencehold import ConfigurationError
from submission_manager.model.contracts import Contract, Queueing
from submission_manager.registry.checks import Problems, at, top

FILE_BYTES_MAX = 16 * 1024 * 1024
PROBLEMS_SHOWN_MAX = 100
DIGITS_MAX = 1000


class BadRegistry(ConfigurationError):
    """The error for a registry file that cannot be used. `problems` lists every problem with its place in the file."""

    code = "bad_registry"

    def __init__(self, where: str, problems: list[str]) -> None:
        shown = problems[:PROBLEMS_SHOWN_MAX]
        more = [f"and {len(problems) - len(shown)} more"] if len(problems) > len(shown) else []
        super().__init__(
            f"The registry {where} cannot be used: " + "; ".join([*shown, *more]) + ".",
            hint="`submission-manager check --registry FILE` prints one problem per line.",
        )
        self.problems = problems


@dataclass(frozen=True)
class Registry:
    contracts: Mapping[str, Contract]
    queueing: Mapping[str, Queueing] = field(default_factory=dict)

    @property
    def priorities(self) -> Mapping[str, int]:
        """The priorities by target; a target that is not a key has 0."""
        return {target: one.priority for target, one in self.queueing.items() if one.priority}

    @property
    def backlogs_max(self) -> Mapping[str, int]:
        """The maximum of pending intents by target; a target that is not a key has no limit."""
        return {target: one.max_backlog for target, one in self.queueing.items() if one.max_backlog is not None}

    def never_retried(self, retry_delay_s: float) -> list[str]:
        """Return the targets whose deadline leaves no time for a second attempt, however soon the first one fails."""
        limits = {target: one.max_acceptance_seconds for target, one in self.contracts.items()}
        return sorted(target for target, limit_s in limits.items() if limit_s is not None and retry_delay_s >= limit_s)

    @property
    def variables(self) -> set[str]:
        """The names of the environment variables for webhooks' secrets and headers."""
        hooks = [one.webhook for one in self.contracts.values() if one.webhook is not None]
        return {variable for hook in hooks for variable in (hook.secret_env, *hook.headers_env.values()) if variable}

    def variables_missing(self, environment: Mapping[str, str]) -> list[str]:
        """Return those of `variables` that are not set here: webhooks that need them would fail."""
        return sorted(variable for variable in self.variables if not environment.get(variable))


def load(path: str | Path) -> Registry:
    """Read and check this file. Raises BadRegistry with every problem at once."""
    where = str(path)
    try:
        with open(path, "rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadRegistry(where, [f"it cannot be read ({error.strerror or type(error).__name__})"]) from None
    if len(raw) > FILE_BYTES_MAX:
        raise BadRegistry(where, [f"it has more than {FILE_BYTES_MAX} bytes"])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRegistry(where, [f"it is not UTF-8 (byte {error.start})"]) from None
    return parse(text, where)


def parse(text: str, where: str = "text") -> Registry:
    problems = Problems()
    document = _json(text, where, problems)
    targets = top(document, problems) if not problems.found else []
    if problems.found:
        raise BadRegistry(where, problems.found)
    named = {target.contract.submission_target: target for target in targets}
    return Registry(
        {name: target.contract for name, target in named.items()},
        {name: target.queueing for name, target in named.items()},
    )


@dataclass(frozen=True)
class _Misfit:
    """A placeholder for a value that no registry may have, until its place in the file is known."""

    why: str


class _Fields(dict[str, Any]):
    """A JSON object that also knows which of its fields were given more than once."""

    def __init__(self, found: list[tuple[str, Any]]) -> None:
        super().__init__(found)
        counts = Counter(name for name, _ in found)
        self.repeated = [name for name, count in counts.items() if count > 1]


def _whole(digits: str) -> int | _Misfit:
    return int(digits) if len(digits) <= DIGITS_MAX else _Misfit(f"a number of {len(digits)} digits is too large")


def _find_misfits(value: object, place: str, problems: Problems) -> None:
    match value:
        case _Misfit():
            problems.add(place, value.why)
        case _Fields():
            for name in value.repeated:
                problems.add(at(place, name), f"the field {name!r} is given more than once")
            for name, inner in value.items():
                _find_misfits(inner, at(place, name), problems)
        case list():
            for n, inner in enumerate(value):
                _find_misfits(inner, f"{place}[{n}]", problems)


def _json(text: str, where: str, problems: Problems) -> Any:
    """Parse the text as JSON and return the value; add a problem if it is invalid.

    Comment lines are blanked, not removed, so that errors keep the file's line numbers.
    """
    bare = "\n".join("" if line.lstrip().startswith("#") else line for line in text.split("\n"))

    try:
        document = json.loads(
            bare, object_pairs_hook=_Fields, parse_int=_whole, parse_constant=lambda name: _Misfit(f"{name} is no JSON")
        )
        _find_misfits(document, "", problems)
        return document
    except json.JSONDecodeError as error:
        raise BadRegistry(where, [f"line {error.lineno} column {error.colno}: {error.msg}"]) from None
    except RecursionError:
        raise BadRegistry(where, ["it is nested too deeply"]) from None
