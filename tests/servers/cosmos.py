"""A stand-in for Cosmos DB from npm, over plain HTTP unless told, whose clock and answers a test can bend."""

import atexit
import shutil
import ssl
import tempfile
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, urlencode

from tests.servers.process import ServerProcess, readable_by_server
from tests.servers.programs import NPM, Missing, reason, require

PACKAGE = "cosmosdb-server"
STARTER = Path(__file__).with_name("cosmos_server.mjs")
KEY = "dGVzdCBrZXkvK29ubHk9PQ=="  # any base64: the stand-in looks at no key


class CosmosServer(ServerProcess):
    """With `tls` its certificate is one that nobody signed."""

    name = "cosmos"
    mark = "cosmos"

    def __init__(self, *, tls: bool = False) -> None:
        self._node = require("node")
        if not (NPM / "@vercel" / PACKAGE).is_dir():
            raise Missing(PACKAGE, reason(PACKAGE))
        self._packages = within_reach(NPM)
        super().__init__()
        self._tls = tls
        # At localhost and 127.0.0.1 the driver looks at no certificate.
        self.host = "127.0.0.2" if tls else "127.0.0.1"
        self._starter = self.folder / STARTER.name
        shutil.copyfile(STARTER, self._starter)
        self._starter.chmod(0o644)

    def command(self) -> Sequence[str | Path]:
        return [
            self._node,
            self._starter,
            self._packages / "@vercel" / PACKAGE,
            self.host,
            str(self.port),
            *["tls"][: self._tls],
        ]

    def answers(self) -> bool:
        try:
            self.request_count()
        except (urllib.error.URLError, OSError):
            return False
        return True

    def url(self, database: str | None = None, *, port: int | None = None, key: str = KEY, **options: str) -> str:
        """Of a database nobody else uses, unless told."""
        name = database or f"d{uuid.uuid4().hex[:12]}"
        query = urlencode(options if self._tls else {"tls": "off", **options})
        login = f":{quote(key, safe='')}@" if key else ""
        return f"cosmos://{login}{self.host}:{port or self.port}/{name}?{query}"

    def shift_clock(self, ahead_s: float) -> None:
        """Its clock runs so far ahead of (or behind) this machine's."""
        self._told("clock", ahead_ms=round(ahead_s * 1000))

    def fail_next(self, times: int, status: int, **more: str | int) -> None:
        """So many requests to documents are answered with this status and not executed."""
        self._told("fail", times=times, status=status, **more)

    def behave(self) -> None:
        """Its clock is the machine's again, and it answers by itself."""
        self.shift_clock(0.0)
        self.fail_next(0, 0)

    def request_count(self) -> int:
        return int(self._told("count"))

    def last_authorization(self) -> str:
        """What the last request to a document said about who sent it; the driver asks for others in the background."""
        return self._told("authorization")

    def _told(self, what: str, **values: str | int) -> str:
        address = f"{'https' if self._tls else 'http'}://{self.host}:{self.port}/__test/{what}?{urlencode(values)}"
        unverified = ssl._create_unverified_context() if self._tls else None
        with urllib.request.urlopen(address, timeout=5, context=unverified) as answer:
            return str(answer.read().decode())


def within_reach(packages: Path) -> Path:
    """The packages, or a copy of them where the server's account may not look."""
    if readable_by_server(packages):
        return packages
    home = Path(tempfile.mkdtemp(prefix="fencehold-npm-"))
    home.chmod(0o755)
    atexit.register(shutil.rmtree, home, ignore_errors=True)

    def unused(folder: str, _: list[str]) -> set[str]:
        """At the top only: packages have folders of these names too."""
        return {"typescript", "pyright", ".bin"} if Path(folder) == packages else set()

    return Path(shutil.copytree(packages, home / "node_modules", symlinks=True, ignore=unused))
