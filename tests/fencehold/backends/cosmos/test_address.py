"""A cosmos:// URL: what it may say, what is refused before any I/O, and that its key shows nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

import fencehold
from fencehold.backends.cosmos.address import Address, parse
from fencehold.backends.cosmos.backend import CosmosBackend
from fencehold.model.errors import ConfigurationError, redact

KEY = "c2VjcmV0L2tleSt3aXRoPT0/PT4="
IN_URL = "c2VjcmV0L2tleSt3aXRoPT0%2FPT4%3D"
GOOD = f"cosmos://:{IN_URL}@acme.documents.azure.com/app"

WRONG = {
    "no host": f"cosmos://:{IN_URL}@/app",
    "a key that is not encoded": "cosmos://:ab/cd==@acme.documents.azure.com/app",
    "a user": f"cosmos://ada:{IN_URL}@acme.documents.azure.com/app",
    "no database": f"cosmos://:{IN_URL}@acme.documents.azure.com/",
    "a path too long": f"cosmos://:{IN_URL}@acme.documents.azure.com/app/more",
    "a port that is none": f"cosmos://:{IN_URL}@acme.documents.azure.com:x/app",
    "an unknown option": f"{GOOD}?colection=x",
    "an option twice": f"{GOOD}?container=a&container=b",
    "an empty container": f"{GOOD}?container=",
    "a forbidden letter": f"{GOOD}?container=a%2Fb",
    "no buckets": f"{GOOD}?buckets=0",
    "buckets in words": f"{GOOD}?buckets=two",
    "a switch in the middle": f"{GOOD}?verify=maybe",
    "a fragment": f"{GOOD}#x",
    "a key that is not base64": "cosmos://:sesame@acme.documents.azure.com/app",
}


def test_a_plain_url_is_a_real_account_over_tls_with_its_certificate_checked():
    assert parse(GOOD) == Address("https://acme.documents.azure.com:443/", "app", "fencehold", KEY)


def test_options_are_heard():
    address = parse(f"{GOOD}?container=leases&buckets=4&tls=off&verify=off")
    assert (address.container, address.buckets, address.verify) == ("leases", 4, False)
    assert address.endpoint.startswith("http://")
    assert address.is_emulator


def test_without_being_asked_no_certificate_is_passed_over():
    assert parse(GOOD).verify is True
    assert parse(GOOD).is_emulator is False


def test_the_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FENCEHOLD_COSMOS_KEY", KEY)
    assert parse("cosmos://acme.documents.azure.com/app").key == KEY


@pytest.mark.parametrize("url", WRONG.values(), ids=WRONG.keys())
def test_what_cannot_work_is_refused_before_any_io_and_does_not_show_the_key(url: str):
    with pytest.raises(ConfigurationError) as caught:
        fencehold.connect(url)
    assert caught.value.code == "bad_url"
    assert "container=fencehold" in caught.value.hint
    assert not any(secret in str(caught.value) for secret in (KEY, IN_URL, "ab/cd", "sesame"))


def test_no_key_at_all_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FENCEHOLD_COSMOS_KEY", raising=False)
    with pytest.raises(ConfigurationError) as caught:
        fencehold.connect("cosmos://acme.documents.azure.com/app")
    assert caught.value.code == "no_key"
    assert "FENCEHOLD_COSMOS_KEY" in str(caught.value)


def test_the_key_is_in_no_repr_and_redacted_from_a_text():
    store = fencehold.connect(GOOD)
    backend = CosmosBackend(parse(GOOD), "fencehold_leases")
    shown = [repr(parse(GOOD)), repr(store), repr(backend), redact(f"could not open {GOOD}")]
    assert not any(secret in text for text in shown for secret in (KEY, IN_URL))


def test_without_the_driver_the_hint_is_how_to_install_it(tmp_path: Path):
    (tmp_path / "azure").mkdir()
    (tmp_path / "azure" / "__init__.py").write_text("raise ModuleNotFoundError('azure', name='azure')")
    program = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import fencehold
try: fencehold.connect({GOOD!r})
except fencehold.ConfigurationError as error: print(error.code, error.hint)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert said.stdout.strip() == "no_driver pip install 'fencehold[cosmos]'"
