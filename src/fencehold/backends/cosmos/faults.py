"""Turns errors of azure-cosmos and aiohttp into ours. Only this file decides: executed, not executed, or unknown."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from azure.core.exceptions import AzureError, ClientAuthenticationError, ServiceRequestTimeoutError
from azure.cosmos.exceptions import CosmosHttpResponseError

from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, Uncertain, redact
from fencehold.ports.time_limit import TimeLimit

INIT_HINT = "Create them with `await store.init()` or `fencehold init`; docs/cosmos.md says how to do it by hand."
KEY_HINT = (
    "Check the account key (a read-only key cannot hold a lease) or, with credential=default, that the identity has "
    "the role Cosmos DB Built-in Data Contributor; and the account's firewall."
)
IDENTITY_HINT = "credential=default: sign in (az login), or give this process an identity; docs/cosmos.md says how."
SIGNED = re.compile(r"eyJ[\w.-]+|(?<=sig=)[^\s&\"']+|(?<=Bearer )\S+")  # a token, or what a key signed
RETRY_AFTER_HEADER = "x-ms-retry-after-ms"
RETRY_AFTER_MS_DEFAULT = 100.0

CONFLICT, PRECONDITION_FAILED, NOT_FOUND = 409, 412, 404
SCRIPT_FAILED = 400
THROTTLED, RETRY_WITH, TOO_LARGE = 429, 449, 413
OWNER_NOT_FOUND, SESSION_NOT_AVAILABLE = 1003, 1002  # sub-statuses of 404
# The server gave up, or did not wait for its replicas: it may already have executed the request.
_UNKNOWN_OUTCOME = (408, 410, 500, 502, 503, 504)
_REFUSED: dict[tuple[int | None, int | None], tuple[str, str]] = {
    (401, None): ("login_refused", KEY_HINT),
    (403, None): ("login_refused", KEY_HINT),
    (403, 3): ("read_only", "This region takes no writes: name the account's own host, not that of a region."),
}


@asynccontextmanager
async def within(limit_s: float, is_write: bool) -> AsyncIterator[None]:
    """Limit the time of the block, and raise the driver's errors in it as ours.

    `is_write`: the block may change data. Then a missing answer is raised as Uncertain, else as Unavailable.
    """
    try:
        async with TimeLimit(max(0.0, limit_s)):
            yield
    except TimeoutError:
        raise of_timeout(is_write) from None
    except CosmosHttpResponseError as error:
        raise of_answer(error, is_write) from None
    except (AzureError, aiohttp.ClientError, OSError) as error:
        raise of_transport(error, is_write) from None


def is_passing(error: Exception) -> bool:
    """Return whether the request was not executed and is worth repeating.

    That is so for too many requests, and for a collision in the server. The server reports an exception in a stored
    procedure as 400, with the cause as sub-status; all that the procedure wrote was undone.
    """
    if not isinstance(error, CosmosHttpResponseError):
        return False
    if error.status_code == SCRIPT_FAILED:
        return error.sub_status in (CONFLICT, PRECONDITION_FAILED, THROTTLED, RETRY_WITH)
    return error.status_code in (THROTTLED, RETRY_WITH)


def of_script(error: CosmosHttpResponseError) -> CosmosHttpResponseError:
    """Return the error of a stored procedure's request; a collision between clients gets the status "to be repeated".

    Elsewhere the numbers of such a collision (409, 412) would be the answer about a document.
    """
    if error.status_code in (CONFLICT, PRECONDITION_FAILED):
        error.status_code = RETRY_WITH
    return error


def retry_after_s(error: CosmosHttpResponseError) -> float:
    """Return how long the server asks us to wait, or a default if it names no time."""
    try:
        return max(0.0, float((error.headers or {}).get(RETRY_AFTER_HEADER, RETRY_AFTER_MS_DEFAULT))) / 1000
    except ValueError:
        return RETRY_AFTER_MS_DEFAULT / 1000


def is_refusal(error: CosmosHttpResponseError) -> bool:
    """Return whether the server refused because the document is not what the caller expected.

    That is: it was changed by another client (412), it exists already (409), or it does not exist (404).
    """
    if error.status_code == NOT_FOUND:
        return error.sub_status not in (OWNER_NOT_FOUND, SESSION_NOT_AVAILABLE)
    return error.status_code in (CONFLICT, PRECONDITION_FAILED)


def of_answer(error: CosmosHttpResponseError, is_write: bool) -> FenceholdError:
    """Return our error for the server's answer to a request that was sent."""
    text, status = _text(error), error.status_code
    if is_write and status in _UNKNOWN_OUTCOME:
        return lost(text)
    if status in (THROTTLED, RETRY_WITH):
        return throttled(text)
    if status == NOT_FOUND and error.sub_status != SESSION_NOT_AVAILABLE:
        return schema_missing(text)
    if status == TOO_LARGE:
        return ConfigurationError(f"The document is too large: {text}.", hint="2 MB at most.", code="too_large")
    code, hint = _REFUSED.get((status, error.sub_status), _REFUSED.get((status, None), ("store_error", "")))
    kind = ConfigurationError if code == "login_refused" else Unavailable
    return kind(f"Cosmos DB refused the request ({status}): {text}.", hint=hint, code=code)


def of_transport(error: Exception, is_write: bool) -> FenceholdError:
    """Return our error for a request without an answer.

    It is Unavailable if the request was certainly not sent or changes nothing, else Uncertain. Only a connection that
    was never made is certain. The driver's own error classes do not show this: they report a connection that was cut
    after sending as a request never sent.
    """
    inner = getattr(error, "inner_exception", None) or error.__cause__ or error
    never_sent = isinstance(error, ServiceRequestTimeoutError | ClientAuthenticationError) or isinstance(
        inner, aiohttp.ClientConnectorError
    )
    return of_connect(error) if never_sent or not is_write else lost(_text(error))


def of_connect(error: Exception) -> FenceholdError:
    """Return our error for a failure before anything was sent that could change data."""
    if isinstance(error, CosmosHttpResponseError):
        return of_answer(error, is_write=False)
    if isinstance(error, ClientAuthenticationError):  # raised by the source of tokens, before a request is sent
        text = f"There is no token of Microsoft Entra ID to be had: {_text(error)}."
        return Unavailable(text, hint=IDENTITY_HINT, code="no_token")  # temporary: the source of tokens may be down
    return Unavailable(
        f"Cosmos DB cannot be reached: {_text(error)}.",
        hint="Check host, port and network, and that the certificate is trusted.",
        code="unreachable",
    )


def of_timeout(is_write: bool) -> FenceholdError:
    if is_write:
        return lost("the time for it was over")
    return Unavailable("Cosmos DB did not answer in time.", code="timeout")


def lost(text: str) -> Uncertain:
    hint = "It counts as lost until the store says otherwise."
    return Uncertain(f"Cosmos DB gave no answer: {text}.", hint=hint, code="no_answer")


def throttled(text: str) -> Unavailable:
    hint = "Raise the container's throughput, or ask less often."
    return Unavailable(f"Cosmos DB put the request off for longer than it may take: {text}.", hint=hint, code="busy")


def schema_missing(text: str) -> ConfigurationError:
    return ConfigurationError(f"The database or container is missing: {text}.", hint=INIT_HINT, code="schema_missing")


def only_by_hand(what: str) -> ConfigurationError:
    """Return the error for something that does not exist and that a login by Entra ID cannot create.

    Such a login can read and write documents, nothing else.
    """
    return ConfigurationError(
        f"{what}, and with credential=default it cannot be created from here.",
        hint="Create it with the Azure command line (docs/cosmos.md), or by `fencehold init` with an account key.",
        code="schema_missing",
    )


def _text(error: BaseException) -> str:
    """Return the error's message on one line, without secrets.

    It is shortened: the driver's messages can fill a page.
    """
    words = SIGNED.sub("***", str(getattr(error, "message", "") or error))
    return redact(" ".join(words.split())[:300]).rstrip(".") or type(error).__name__
