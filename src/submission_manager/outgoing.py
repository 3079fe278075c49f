"""Outgoing HTTP calls: one connection pool, hard limits on time and size, and errors that contain no secrets."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from urllib.parse import quote

import httpx

from submission_manager.model.outcomes import no_answer

USER_AGENT = "submission-manager"
KEPT_CONNECTIONS_MAX = 100
UNKNOWN_HOST = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))

#: Everything printable but the percent sign, so that two different texts never become the same header.
_PLAIN = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) != "%")


@dataclass(frozen=True, slots=True)
class Answered:
    status_code: int
    body: bytes  # at most `body_bytes_max` + 1 bytes; the rest is cut
    is_encoded: bool  # the body is compressed, although we asked for plain text


class NoAnswer(Exception):
    """Raised when there was no answer.

    The message is our own text: a library's text may quote a URL and so a password.
    """


def header_text(text: str) -> str:
    """Return `text` unchanged if it is printable ASCII without a percent sign; else percent-encoded as UTF-8."""
    return quote(text, safe=_PLAIN)


class Outgoing:
    """The HTTP client of one event loop. It ignores redirects, cookies, and the proxies set in the environment."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(
            timeout=None,  # noqa: S113 - the limit is on the whole call, below
            follow_redirects=False,
            trust_env=False,
            verify=_trusted(),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS_MAX),
        )
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._client.headers = httpx.Headers({"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, limit_s: float, body_bytes_max: int
    ) -> Answered:
        """POST once and return the answer. Ends within `limit_s`, whatever the other side does.

        Raises NoAnswer if there is no complete answer.
        """
        try:
            async with asyncio.timeout(limit_s):
                return await self._post(url, body, headers, body_bytes_max)
        except TimeoutError:
            raise NoAnswer(no_answer(limit_s)) from None
        except httpx.HTTPError as error:
            raise NoAnswer(_words(error)) from None
        except Exception as error:  # noqa: BLE001 - a bad URL, a header, a resolver: in any case there was no answer
            raise NoAnswer(f"the call could not be made ({type(error).__name__})") from None

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str], body_bytes_max: int) -> Answered:
        async with self._client.stream("POST", url, content=body, headers=dict(headers)) as response:
            got = bytearray()
            async for chunk in response.aiter_raw(4096):
                got += chunk
                if len(got) > body_bytes_max:
                    break
            is_encoded = response.headers.get("content-encoding", "identity").lower() != "identity"
            return Answered(response.status_code, bytes(got[: body_bytes_max + 1]), is_encoded)

    async def aclose(self) -> None:
        await self._client.aclose()


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Return the machine's trusted certificates; they are loaded once, because loading is slow."""
    return ssl.create_default_context()


def _words(error: httpx.HTTPError) -> str:
    match error:
        case httpx.ConnectError():
            return f"cannot connect{_because(error)}"
        case httpx.RemoteProtocolError() | httpx.ReadError():
            return "the connection broke before the answer was complete"
        case httpx.WriteError():
            return "the connection broke while sending"
    return f"no answer ({type(error).__name__})"


def _because(error: BaseException) -> str:
    """Return the reason for a failed connection in our own words, from the error's causes; empty if there is none."""
    behind: list[BaseException] = [error]
    while behind:
        one = behind.pop()
        words = _reason(one)
        if words is not None:
            return f" ({words})"
        if isinstance(one, BaseExceptionGroup):
            behind += one.exceptions
        behind += [cause for cause in (one.__cause__, one.__context__) if cause is not None][:1]
    return ""


def _reason(error: BaseException) -> str | None:
    match error:
        case socket.gaierror():
            return "unknown host" if error.errno in UNKNOWN_HOST else "its name could not be resolved"
        case ssl.SSLCertVerificationError():
            return f"TLS: {error.verify_message.partition(',')[0]}"
        case ssl.SSLError():
            return f"TLS: {error.reason or 'handshake failed'}"
        case ConnectionRefusedError():
            return "refused"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number).lower()
    return None
