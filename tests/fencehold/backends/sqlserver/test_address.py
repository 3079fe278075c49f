"""A mssql:// URL: what it may say, what is refused before any I/O, and that its password shows nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

import fencehold
from fencehold.backends.sqlserver.address import Address
from fencehold.model.errors import ConfigurationError, redact

PASSWORD = "p@ss/w;rd}=1"
IN_URL = "p%40ss%2Fw%3Brd%7D%3D1"
GOOD = f"mssql://app:{IN_URL}@db.example:1444/orders"

WRONG = {
    "no host": f"mssql://app:{IN_URL}@/orders",
    "no database": f"mssql://app:{IN_URL}@db.example/",
    "a password that is not encoded": f"mssql://app:{PASSWORD}@db.example/orders",
    "a slash in the password": "mssql://app:12/hunter2@db.example/orders",
    "a path too long": f"mssql://app:{IN_URL}@db.example/orders/more",
    "a port that is none": f"mssql://app:{IN_URL}@db.example:x/orders",
    "a port too high": f"mssql://app:{IN_URL}@db.example:70000/orders",
    "a fragment": f"mssql://app:{IN_URL}@db.example/orders#x",
    "an unknown option": f"{GOOD}?encript=yes",
    "a choice that is none": f"{GOOD}?encrypt=maybe",
    "the driver's own keyword": f"{GOOD}?PWD=hunter2",
    "an option twice": f"{GOOD}?encrypt=no&Encrypt=yes",
    "an authentication that is none": f"{GOOD}?authentication=Foo",
    "a control character": f"mssql://app:{IN_URL}@db.example/or%00ders",
}


def pairs(url: str) -> dict[str, str]:
    """The connection string, read back by the driver's own parser."""
    from mssql_python.connection_string_parser import _ConnectionStringParser

    parsed = _ConnectionStringParser(validate_keywords=True)._parse(Address.of(url).connection_string())
    return {word.lower(): value for word, value in parsed.items()}


def test_a_plain_url_names_host_port_database_and_login():
    named = {"server": "db.example,1444", "database": "orders", "uid": "app", "pwd": PASSWORD}
    assert pairs(GOOD) == {**named, "connectretrycount": "0"}


def test_the_port_may_be_left_out():
    assert pairs("mssql://app:x@db.example/orders")["server"] == "db.example,1433"


def test_without_being_asked_encryption_and_certificates_are_as_the_driver_has_them():
    said = pairs(GOOD)
    assert "encrypt" not in said
    assert "trustservercertificate" not in said


def test_options_are_heard():
    said = pairs(f"{GOOD}?encrypt=strict&trust_server_certificate=yes&multi_subnet_failover=yes")
    assert (said["encrypt"], said["trustservercertificate"], said["multisubnetfailover"]) == ("strict", "yes", "yes")


def test_the_options_of_sqlalchemys_urls_are_heard():
    assert pairs(f"{GOOD}?Encrypt=no&TrustServerCertificate=yes")["trustservercertificate"] == "yes"


def test_a_login_without_a_password_is_a_login():
    assert pairs("mssql://4711-ab@db.example/orders?authentication=ActiveDirectoryMSI")["uid"] == "4711-ab"
    assert "pwd" not in pairs("mssql://app@db.example/orders")


def test_without_a_login_the_account_that_runs_the_program_is_meant():
    assert pairs("mssql://db.example/orders")["trusted_connection"] == "yes"
    managed = pairs("mssql://db.example/orders?authentication=ActiveDirectoryMSI")
    assert managed["authentication"] == "ActiveDirectoryMSI"
    assert "trusted_connection" not in managed


def test_a_password_cannot_add_to_the_connection_string():
    sly = "x;Server=evil.example,1433;PWD={y}"
    said = pairs("mssql://app:x%3BServer%3Devil.example%2C1433%3BPWD%3D%7By%7D@db.example/orders")
    assert (said["server"], said["pwd"]) == ("db.example,1433", sly)


@pytest.mark.parametrize("url", WRONG.values(), ids=WRONG.keys())
def test_what_cannot_work_is_refused_before_any_io_and_does_not_show_the_password(url: str):
    with pytest.raises(ConfigurationError) as caught:
        fencehold.connect(url)
    assert caught.value.code == "bad_url"
    assert caught.value.hint
    assert not any(secret in str(caught.value) for secret in (PASSWORD, IN_URL, "w;rd", "hunter2"))


@pytest.mark.parametrize("scheme", ["mssql", "sqlserver", "mssql+mssqlpython"])
def test_the_schemes_of_other_libraries_are_understood_and_the_password_is_in_no_repr(scheme: str):
    url = GOOD.replace("mssql://", f"{scheme}://")
    shown = [repr(fencehold.connect(url)), repr(Address.of(GOOD)), redact(f"could not open {url}")]
    assert not any(secret in text for text in shown for secret in (PASSWORD, IN_URL))


def test_without_the_driver_the_hint_is_how_to_install_it(tmp_path: Path):
    (tmp_path / "mssql_python.py").write_text("raise ModuleNotFoundError('mssql_python', name='mssql_python')")
    program = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import fencehold
try: fencehold.connect({GOOD!r})
except fencehold.ConfigurationError as error: print(error.code, error.hint)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert said.stdout.strip() == "no_driver pip install 'fencehold[sqlserver]'"
