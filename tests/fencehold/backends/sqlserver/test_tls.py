"""TLS that this server will never speak is a mistake, told at first contact; a handshake that breaks off is an outage.

The driver is the real one; the server only goes as far as the handshake.
"""

import contextlib
import datetime as dt
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import fencehold
from fencehold.backends.sqlserver import driver, faults
from fencehold.connect import backend_for
from tests.fencehold.cli.cli_process import Command, error_of

LIMIT_S = 20.0
ENCRYPTED, NOT_SUPPORTED = 1, 2
Answer = Callable[[socket.socket], object]


def prelogin(encryption: int) -> bytes:
    """The server's first packet: its version, and whether it encrypts."""
    options = bytes([0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 255])
    body = options + bytes([16, 0, 3, 232, 0, 0, encryption])
    return struct.pack(">BBHHBB", 4, 1, 8 + len(body), 0, 1, 0) + body


def without_encryption(client: socket.socket) -> None:
    client.recv(4096)
    client.sendall(prelogin(NOT_SUPPORTED))
    client.recv(4096)


def dies_in_the_handshake(client: socket.socket) -> None:
    client.recv(4096)
    client.sendall(prelogin(ENCRYPTED))
    client.recv(4096)


def speaks_http(client: socket.socket) -> None:
    client.recv(4096)
    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.fixture
def with_unknown_certificate(tmp_path: Path) -> Answer:
    """TLS before anything else, with a certificate that nobody signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "db.example")])
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now.replace(2099))
    file = tmp_path / "server.pem"
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(key.private_bytes(*form) + made.sign(key, hashes.SHA256()).public_bytes(form[0]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    context.set_alpn_protocols(["tds/8.0"])

    def answer(client: socket.socket) -> None:
        with contextlib.suppress(ssl.SSLError), context.wrap_socket(client, server_side=True) as encrypted:
            encrypted.recv(4096)

    return answer


@pytest.fixture
def served() -> Iterator[Callable[..., str]]:
    """`served(answer)` is the address of a server that does so with each connection."""
    with contextlib.ExitStack() as stack:

        def serve(answer: Answer, options: str = "") -> str:
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def each() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        with contextlib.closing(server.accept()[0]) as client, contextlib.suppress(ConnectionError):
                            answer(client)

            threading.Thread(target=each, daemon=True).start()
            return f"mssql://app:secret@127.0.0.1:{server.getsockname()[1]}/orders{options}"

        yield serve


async def fault_of(url: str) -> fencehold.FenceholdError:
    backend = backend_for(url)()
    with pytest.raises(fencehold.FenceholdError) as caught:
        await backend.open(LIMIT_S)
    await backend.close()
    return caught.value


async def test_a_server_that_does_not_encrypt_is_a_mistake_of_the_url(served: Callable[..., str]) -> None:
    fault = await fault_of(served(without_encryption))
    assert (type(fault), fault.code) == (fencehold.ConfigurationError, "tls_refused")
    assert "?encrypt=no" in fault.hint


async def test_a_certificate_that_nobody_signed_is_a_mistake(
    served: Callable[..., str], with_unknown_certificate: Answer
) -> None:
    fault = await fault_of(served(with_unknown_certificate, "?encrypt=strict"))
    assert (type(fault), fault.code) == (fencehold.ConfigurationError, "tls_refused")
    assert "certificate" in fault.hint


async def test_a_port_that_speaks_something_else_than_tls_is_a_mistake(served: Callable[..., str]) -> None:
    fault = await fault_of(served(speaks_http, "?encrypt=strict"))
    assert (type(fault), fault.code) == (fencehold.ConfigurationError, "tls_refused")


@pytest.mark.parametrize("options", ["", "?encrypt=strict"])
async def test_a_server_that_dies_in_the_handshake_is_waited_for(served: Callable[..., str], options: str) -> None:
    answer = (lambda client: client.recv(4096)) if options else dies_in_the_handshake
    fault = await fault_of(served(answer, options))
    assert (type(fault), fault.code) == (fencehold.Unavailable, "unreachable")


def test_run_ends_at_once_where_tls_is_refused(served: Callable[..., str]) -> None:
    code, error = error_of(served(without_encryption), "run", "x", "--", "true")
    assert (code, error["code"]) == (78, "tls_refused")


def test_run_waits_for_a_server_that_dies_in_the_handshake(served: Callable[..., str]) -> None:
    with Command(served(dies_in_the_handshake), "run", "x", "--", "true") as command:
        assert "waiting for the database, lease 'x': [unreachable]" in command.stderr_line()
        assert command.child.poll() is None


@pytest.mark.parametrize(
    "said",
    [
        "SSL Provider: [error:0A000086:SSL routines::certificate verify failed:self-signed certificate]",
        "SSL Provider: The certificate chain was issued by an authority that is not trusted",
        "SSL Provider: The target principal name is incorrect",
        "SSL Provider: [error:0A000102:SSL routines::unsupported protocol]",
        "SSL Provider: [OpenSSL library could not be loaded, make sure OpenSSL 1.0 or 1.1 is installed]",
        "Encryption not supported on SQL Server",
    ],
)
def test_refusals_in_the_words_of_the_other_driver_are_mistakes(said: str) -> None:
    """Of Microsoft's ODBC driver, as its users report them; not run."""
    fault = faults.of_connect(
        driver.Error("Client unable to establish connection", f"[Microsoft][ODBC Driver 18 for SQL Server]{said}")
    )
    assert (type(fault), fault.code) == (fencehold.ConfigurationError, "tls_refused")


@pytest.mark.parametrize(
    "said",
    [
        "SSL Provider: An existing connection was forcibly closed by the remote host",
        "SSL Provider: [error:0A000126:SSL routines::unexpected eof while reading]",
        'Cannot open database "orders" requested by the login. The login failed. Login failed for user "app"',
        "Login timeout expired",
    ],
)
def test_what_may_be_an_outage_is_none_in_any_words(said: str) -> None:
    fault = faults.of_connect(
        driver.Error("Client unable to establish connection", f"[Microsoft][ODBC Driver 18 for SQL Server]{said}")
    )
    assert type(fault) is fencehold.Unavailable
