"""The driver without a server: it is there, it needs no other library, and its faults are told as ours."""

import contextlib
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import mssql_python
import pytest

import fencehold
from fencehold.backends.sqlserver import driver
from fencehold.connect import backend_for
from fencehold.testing.proxy import ThreadedFaultProxy

PASSWORD = "hunter2;PWD={x}"
IN_URL = "hunter2%3BPWD%3D%7Bx%7D"
LIMIT_S = 2.0


def url(port: int, host: str = "127.0.0.1") -> str:
    return f"mssql://app:{IN_URL}@{host}:{port}/orders"


@pytest.fixture
def listening() -> Iterator[Callable[..., int]]:
    """`listening(answer)` is the port of a server that does so with each connection; without one it stays silent."""
    with contextlib.ExitStack() as stack:

        def listen(answer: Callable[[socket.socket], object] | None = None) -> int:
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def serve() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        with contextlib.closing(server.accept()[0]) as client:
                            answer(client) if answer else client.recv(1 << 20, socket.MSG_WAITALL)

            threading.Thread(target=serve, daemon=True).start()
            return int(server.getsockname()[1])

        yield listen


async def refused(url: str) -> fencehold.Unavailable:
    """The error of opening it, which comes within the limit."""
    backend = backend_for(url)()
    started_s = time.monotonic()
    with pytest.raises(fencehold.Unavailable) as caught:
        await backend.open(LIMIT_S)
    assert time.monotonic() - started_s < LIMIT_S + 1
    await backend.close()
    assert PASSWORD not in str(caught.value)
    return caught.value


def test_the_driver_is_there(checked_without_server: Callable[[str], None]) -> None:
    driver.set_up()
    told = mssql_python.get_native_provider_info()
    assert told["driver_path"], told
    checked_without_server(f"driver mssql-python {mssql_python.__version__} imported, provider {told['id']}")


async def test_a_closed_port_is_told_within_the_limit() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        fault = await refused(url(bound.getsockname()[1]))
    assert fault.code == "unreachable"
    assert "Check host, port and network" in fault.hint


async def test_a_name_that_nobody_knows_is_told() -> None:
    assert (await refused(url(1433, "no-such-host.invalid"))).code == "unreachable"


async def test_a_server_that_stays_silent_is_given_up_within_the_limit(listening: Callable[..., int]) -> None:
    fault = await refused(url(listening()))
    assert fault.code == "unreachable"
    assert "nothing was sent" in fault.message


async def test_a_server_that_hangs_up_and_one_of_another_kind_are_told(listening: Callable[..., int]) -> None:
    def as_http(client: socket.socket) -> None:
        client.recv(100)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    for answer in (socket.socket.close, as_http):
        assert (await refused(url(listening(answer)))).code == "unreachable"


def python(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_the_password_is_in_no_log_even_when_the_driver_is_told_to_say_everything(
    listening: Callable[..., int],
) -> None:
    said = python(f"""
        import asyncio, logging, sys
        import fencehold, mssql_python
        logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
        mssql_python.setup_logging(output="stdout")
        store = fencehold.connect({url(listening(socket.socket.close))!r})
        try: asyncio.run(store.open(timeout_s=3))
        except fencehold.Unavailable as error: print(repr(error), error, repr(store))
    """)
    assert "unreachable" in said.stdout
    assert "DEBUG" in said.stdout
    assert "hunter2" not in said.stdout + said.stderr


def test_a_process_that_ends_while_a_server_is_silent_ends_in_order(listening: Callable[..., int]) -> None:
    said = python(f"""
        import asyncio
        from fencehold.connect import backend_for
        try: asyncio.run(backend_for({url(listening())!r})().open(0.5))
        except Exception as error: print(error.code)
    """)
    assert (said.returncode, said.stdout.strip(), said.stderr) == (0, "unreachable", "")


ENDS = """
    import asyncio, sys
    from fencehold.connect import backend_for

    async def main():
        backend = backend_for(sys.argv[1])()
        await backend.open(20)
        print("open", flush=True)
        sys.stdin.readline()
        try: await backend.open(1.9)
        except Exception as error: print(type(error).__name__)

    asyncio.run(main())
"""


def test_a_process_that_ends_in_the_midst_of_a_call_ends_in_order(mssql_url: str) -> None:
    """The driver by itself would close the connection under the call, and the process would end by SIGABRT."""
    parts = urlsplit(mssql_url)
    with ThreadedFaultProxy(str(parts.hostname), parts.port or 1433) as proxy:
        place = mssql_url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{proxy.port}")
        command = [sys.executable, "-c", textwrap.dedent(ENDS), place]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            proxy.freeze()
            said, _ = process.communicate("\n", timeout=20)
    assert (process.returncode, said.strip()) == (0, "Uncertain")


async def test_what_a_server_refuses_is_told_by_its_reason(mssql_url: str) -> None:
    parts = urlsplit(mssql_url)
    stranger = parts._replace(netloc=f"nobody_at_all:{IN_URL}@{parts.netloc.rpartition('@')[2]}").geturl()
    assert (await refused(stranger)).code == "login_refused"
    assert (await refused(parts._replace(path="/no_such_database").geturl())).code == "no_such_database"


FORKS = """
    import asyncio, atexit, os, sys
    parent = os.getpid()
    atexit.register(lambda: os.getpid() == parent or os._exit(0))  # after ours; the driver's own end hangs in a child
    from fencehold.connect import backend_for

    async def main():
        backend = backend_for(sys.argv[1])()
        await backend.open(20)
        child = os.fork()
        if child == 0:
            return
        os.waitpid(child, 0)
        before = backend._session._line
        await backend.open(20)
        print("still open" if backend._session._line is before else "opened again")

    asyncio.run(main())
"""


def test_a_forked_childs_end_leaves_its_parents_connection_alone(mssql_url: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(FORKS), mssql_url]
    said = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert said.stdout.strip() == "still open", said.stderr
