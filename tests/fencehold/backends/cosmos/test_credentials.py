"""A token of Microsoft Entra ID in place of the account key: what it can do, what not, and that it shows nowhere.

The tokens are made up and the stand-in looks at none: whether the service takes one, and for what, is not seen here.
"""

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import azure.identity.aio
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

import fencehold
from fencehold.backends.cosmos import faults
from fencehold.backends.cosmos.address import Address, parse
from fencehold.backends.cosmos.credentials import token_credential
from fencehold.model.election.rules import Ask
from fencehold.model.errors import ConfigurationError, Unavailable
from tests.conftest import not_run
from tests.fencehold.backends.cosmos.conftest import LIMIT_S
from tests.fencehold.backends.cosmos.test_address import GOOD, KEY
from tests.servers.cosmos import CosmosServer
from tests.servers.programs import Missing

Opened = Callable[..., Any]
PLAIN = "cosmos://acme.documents.azure.com/app"
ASK = Ask("job", "ada", 60.0, "n")


class FakeCredential:
    """Gives tokens that are nearly over, as the service would; refuses when told."""

    made: ClassVar[list["FakeCredential"]] = []
    refuses = False

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.scopes: set[str] = set()
        self.is_closed = False
        FakeCredential.made.append(self)

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        assert not self.is_closed
        if FakeCredential.refuses:
            raise ClientAuthenticationError("no identity answers")
        self.scopes |= set(scopes)
        self.tokens.append(f"eyJhbGciOi.made-up-token-{len(FakeCredential.made)}-{len(self.tokens)}")
        return AccessToken(self.tokens[-1], int(time.time()) + 1)

    async def close(self) -> None:
        self.is_closed = True

    async def __aenter__(self) -> "FakeCredential":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> type[FakeCredential]:
    monkeypatch.setattr(azure.identity.aio, "DefaultAzureCredential", FakeCredential)
    monkeypatch.setattr(FakeCredential, "made", [])
    monkeypatch.setattr(FakeCredential, "refuses", False)
    return FakeCredential


@pytest.fixture(scope="module")
def tls_server(request: pytest.FixtureRequest) -> Iterator[CosmosServer]:
    """No token is sent without TLS."""
    try:
        server = CosmosServer(tls=True)
    except Missing as missing:
        not_run(request.config, missing)
    server.start()
    yield server
    server.close()


@pytest.fixture
def url(tls_server: CosmosServer) -> Iterator[str]:
    yield tls_server.url("entra", key="", verify="off", credential="default")
    tls_server.behave()


async def made_by_hand(opened: Opened, server: CosmosServer) -> None:
    """The container, as an administrator would make it: by key."""
    async with opened(url=server.url("entra", verify="off")):
        pass


def test_without_a_key_the_url_asks_for_an_identity_and_a_key_of_the_environment_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("FENCEHOLD_COSMOS_KEY", KEY)
    address = parse(f"{PLAIN}?credential=default")
    assert address == Address("https://acme.documents.azure.com:443/", "app", credential="default")
    assert address.key == ""


@pytest.mark.parametrize(
    "url", [f"{PLAIN}?credential=none", f"{PLAIN}?credential=", f"{GOOD}?credential=default",
            f"{PLAIN}?credential=default&tls=off"],
)  # fmt: skip
def test_an_unknown_credential_one_beside_a_key_and_one_without_tls_are_refused_before_any_io(url: str):
    with pytest.raises(ConfigurationError) as caught:
        fencehold.connect(url)
    assert caught.value.code == "bad_url"
    assert KEY not in str(caught.value)


def test_without_azure_identity_the_hint_is_how_to_install_it():
    program = f"""
import sys; sys.modules["azure.identity"] = None
import fencehold
try: fencehold.connect({PLAIN + "?credential=default"!r})
except fencehold.ConfigurationError as error: print(error.code, error.hint)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert said.stdout.strip() == "no_driver pip install 'fencehold[entra]'"


def test_an_environment_that_azure_identity_cannot_read_is_a_mistake_of_configuration(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "nonsense")
    with pytest.raises(ConfigurationError) as caught:
        token_credential()
    assert caught.value.code == "bad_credential"


async def test_every_request_carries_a_token_of_the_identity_that_is_not_over(
    opened: Opened, tls_server: CosmosServer, url: str, identity: type[FakeCredential]
) -> None:
    await made_by_hand(opened, tls_server)
    async with opened(url=url) as backend:
        seen = set()
        for _ in range(2):
            assert await backend.leases.acquire(ASK, LIMIT_S) is not None
            [known] = identity.made
            scheme, _, token = tls_server.last_authorization().rpartition("=")
            assert (scheme, token in known.tokens) == ("type=aad&ver=1.0&sig", True)
            seen.add(token)
        assert len(seen) == 2, "one that is nearly over is not used again"
        assert known.scopes == {f"https://{tls_server.host}/.default"}


async def test_the_credential_is_closed_with_the_store_and_when_opening_failed(
    opened: Opened, tls_server: CosmosServer, url: str, identity: type[FakeCredential]
) -> None:
    await made_by_hand(opened, tls_server)
    async with opened(url=url) as backend:
        items = backend.items("negotiation")
        assert await items.admin.find(None, 1, LIMIT_S) == []
        await items.close()
    with pytest.raises(Unavailable):
        async with opened(url=url.replace(f":{tls_server.port}/", ":9/")):
            pytest.fail("opened")
    assert [one.is_closed for one in identity.made] == [True, True, True]


async def test_without_a_token_nothing_was_sent_and_nothing_is_uncertain(
    opened: Opened, tls_server: CosmosServer, url: str, identity: type[FakeCredential], monkeypatch: pytest.MonkeyPatch
) -> None:
    await made_by_hand(opened, tls_server)
    async with opened(url=url) as backend:
        held = await backend.leases.acquire(Ask("held", "ada", 60.0, "n"), LIMIT_S)
        monkeypatch.setattr(identity, "refuses", True)
        for call in (backend.leases.acquire(ASK, LIMIT_S), backend.leases.renew([held.key(60.0)], LIMIT_S)):
            with pytest.raises(Unavailable) as caught:
                await call
            assert caught.value.code == "no_token"
            assert "az login" in caught.value.hint
    with pytest.raises(Unavailable) as caught:
        async with opened(url=url):
            pytest.fail("opened")
    assert caught.value.code == "no_token"


async def test_what_a_token_cannot_create_is_said_to_be_made_by_hand(
    opened: Opened, tls_server: CosmosServer, identity: type[FakeCredential]
) -> None:
    before = tls_server.url("nothing_here", key="", verify="off", credential="default")
    async with opened(url=before, init=False) as backend:
        with pytest.raises(ConfigurationError) as caught:
            await backend.schema.init(LIMIT_S)
        assert caught.value.code == "schema_missing"
        assert "command line" in caught.value.hint
    await made_by_hand(opened, tls_server)
    async with opened(url=before.replace("nothing_here", "entra"), init=False) as backend:
        assert await backend.schema.init(LIMIT_S) == []


async def test_neither_a_key_nor_a_token_is_in_an_error_or_a_log(
    opened: Opened, tls_server: CosmosServer, url: str, identity: type[FakeCredential], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    by_key = tls_server.url("entra", verify="off", key=KEY)
    await made_by_hand(opened, tls_server)
    said = ""
    for one in (url, by_key):
        async with opened(url=one) as backend:
            for status in (401, 403, 500):
                tls_server.fail_next(1, status)
                with pytest.raises(fencehold.FenceholdError) as caught:
                    await backend.leases.acquire(ASK, LIMIT_S)
                said += f"{caught.value!r} {caught.value} {caught.value.__dict__} {backend!r}"
    secrets = [KEY, *(token for one in identity.made for token in one.tokens)]
    assert len(secrets) > 2
    assert "request" in caplog.text.lower(), "the driver did log"
    assert not [secret for secret in secrets if secret in said + caplog.text]


@pytest.mark.parametrize("echo", ["eyJhbGciOi.made-up.token", "type=aad&ver=1.0&sig=made-up", "Bearer made-up"])
def test_a_token_that_an_answer_repeats_is_left_out_of_the_error(echo: str):
    error = faults.of_connect(ClientAuthenticationError(f"this is not well-formed: '{echo}' and more"))
    assert "made-up" not in repr(error) + str(error)
    assert "and more" in str(error)
