"""The registry file: which targets there are and the contract of each. Read at startup, checked as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencehold.model.errors import ConfigurationError
from submission_manager.model.contracts import Contract
from submission_manager.registry_checks import Problems, top

FILE_BYTES_MAX = 16 * 1024 * 1024
PROBLEMS_SHOWN_MAX = 100


class BadRegistry(ConfigurationError):
    """`problems`: every one, each with its place."""

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

    def contract(self, target: str) -> Contract | None:
        return self.contracts.get(target)

    def variables_missing(self, environment: Mapping[str, str]) -> list[str]:
        """Variables of secrets and headers that are not set here: webhooks that need them would fail."""
        hooks = [one.webhook for one in self.contracts.values() if one.webhook is not None]
        named = {variable for hook in hooks for variable in (hook.secret_env, *hook.headers_env.values()) if variable}
        return sorted(variable for variable in named if not environment.get(variable))


def load(path: str | Path) -> Registry:
    """The registry in this file, or BadRegistry with every problem at once."""
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
    contracts = top(document, problems) if not problems.found else []
    if problems.found:
        raise BadRegistry(where, problems.found)
    return Registry({contract.submission_target: contract for contract in contracts})


def _json(text: str, where: str, problems: Problems) -> Any:
    """Comment lines are blanked, not removed: the line numbers of an error stay those of the file."""
    bare = "\n".join("" if line.lstrip().startswith("#") else line for line in text.split("\n"))

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in found]
        for name in sorted({name for name in names if names.count(name) > 1}):
            problems.add("", f"the field {name!r} is given more than once in one object")
        return dict(found)

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is no JSON")

    try:
        return json.loads(bare, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise BadRegistry(where, [f"line {error.lineno} column {error.colno}: {error.msg}"]) from None
    except ValueError as error:
        raise BadRegistry(where, [str(error)]) from None
    except RecursionError:
        raise BadRegistry(where, ["it is nested too deeply"]) from None
