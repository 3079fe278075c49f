"""Reads and checks a cosmos:// URL before anything is opened. The key never shows in an error, a log or a repr.

The login is an account key, in the URL or in the environment, or `credential=default`: a token of Microsoft Entra ID.
The URL decides: with credential=default, a key in the environment is not used.
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from fencehold.model.errors import ConfigurationError

KEY_VARIABLE = "FENCEHOLD_COSMOS_KEY"
SHAPE = "cosmos://:KEY@account.documents.azure.com/database?container=fencehold"
DEFAULT_CONTAINER = "fencehold"
NAME_CHARS_MAX = 255
BUCKETS_MAX = 1000
HTTPS_PORT = 443


@dataclass(frozen=True)
class Address:
    """Where the documents are, and how to log in.

    `buckets`: over how many logical partitions the items of one kind are spread. `by_procedure`: True if the verbs of
    items run as stored procedures. `credential`: "default" to log in with Microsoft Entra ID, "" to log in with a key.
    `tls` and `verify` are False only for an emulator, which has a certificate of its own and reports addresses that
    cannot be reached.
    """

    endpoint: str
    database: str
    container: str = DEFAULT_CONTAINER
    key: str = field(default="", repr=False)
    credential: str = ""
    buckets: int = 1
    by_procedure: bool = False
    verify: bool = True
    is_emulator: bool = False


def parse(url: str) -> Address:
    """Return the address. Raises ConfigurationError that names the mistake and shows the right form."""
    parts = _split(url)
    options = _options(parts)
    tls, verify = _choice(options, "tls", "on", "off"), _choice(options, "verify", "on", "off")
    container, buckets = options.pop("container", DEFAULT_CONTAINER), options.pop("buckets", "1")
    items = _choice(options, "items", "etag", "procedures")
    credential = _credential(options.pop("credential", None), parts, tls)
    if options:
        raise wrong(
            f"Unknown option {min(options)!r}; known are container, buckets, items, credential, verify and tls."
        )
    return Address(
        endpoint=_endpoint(parts, tls == "on"),
        database=_name(unquote(parts.path.removeprefix("/")), "database"),
        container=_name(container, "container"),
        key=_key(parts) if not credential else "",
        credential=credential,
        buckets=_buckets(buckets),
        by_procedure=items == "procedures",
        verify=verify == "on",
        is_emulator="off" in (tls, verify),
    )


def wrong(problem: str, code: str = "bad_url") -> ConfigurationError:
    return ConfigurationError(f"This Cosmos DB URL cannot work: {problem}", hint=f"Use {SHAPE}.", code=code)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # read now: a wrong one raises
    except ValueError:
        raise wrong("its host or port cannot be read; is the key percent-encoded?") from None
    if parts.username:
        raise wrong("it names a user; an account has only a key, written after a colon.")
    if not parts.hostname:
        raise wrong("it names no host; is the key percent-encoded (%2F for /)?")
    return parts


def _options(parts: SplitResult) -> dict[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if parts.fragment or len({name for name, _ in pairs}) != len(pairs):
        raise wrong("it has an option twice, or a fragment (write # as %23).")
    return dict(pairs)


def _choice(options: dict[str, str], name: str, usual: str, other: str) -> str:
    """Remove the option `name` from `options` and return its value; `usual` if it is not there.

    Raises ConfigurationError if the value is neither `usual` nor `other`.
    """
    value = options.pop(name, usual)
    if value not in (usual, other):
        raise wrong(f"{name}={value!r:.20} is neither {usual} nor {other}.")
    return value


def _endpoint(parts: SplitResult, tls: bool) -> str:
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{'https' if tls else 'http'}://{host}:{parts.port or HTTPS_PORT}/"


def _name(name: str, what: str) -> str:
    if not name or len(name) > NAME_CHARS_MAX or any(c in name for c in "/\\?#\0") or name != name.strip():
        raise wrong(f"{name!r:.80} cannot be the name of a {what}.")
    return name


def _buckets(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= BUCKETS_MAX):
        raise wrong(f"buckets={text!r:.20} is not a number from 1 to {BUCKETS_MAX}.")
    return int(text)


def _credential(asked: str | None, parts: SplitResult, tls: str) -> str:
    if asked is None:
        return ""
    if asked != "default":
        raise wrong(f"credential={asked!r:.20} is not known; there is credential=default.")
    if parts.password:
        raise wrong("it has both a key and credential=default.")
    if tls == "off":
        raise wrong("credential=default sends a token, which tls=off would show to everybody on the way.")
    return asked


def _key(parts: SplitResult) -> str:
    key = unquote(parts.password or "") or os.environ.get(KEY_VARIABLE, "").strip()
    if not key:
        raise wrong(
            f"there is no account key in it, nor in the environment as {KEY_VARIABLE}, and no credential=default.",
            code="no_key",
        )
    try:
        base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raise wrong("its key is not base64; is it percent-encoded (%2B for +, %2F for /, %3D for =)?") from None
    return key
