"""Turns an mssql:// URL into the driver's connection string.

Errors repeat nothing of the URL except the name of an unknown option.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from fencehold.model.errors import ConfigurationError

DEFAULT_PORT = 1433
#: The options that a URL may have after its question mark, and the driver's name for each.
OPTIONS = {
    "encrypt": "Encrypt",
    "trust_server_certificate": "TrustServerCertificate",
    "authentication": "Authentication",
    "multi_subnet_failover": "MultiSubnetFailover",
}
CHOICES = {
    "encrypt": ("yes", "no", "strict", "mandatory", "optional"),
    "trust_server_certificate": ("yes", "no"),
    "multi_subnet_failover": ("yes", "no"),
    "authentication": (
        "sqlpassword", "activedirectorypassword", "activedirectoryintegrated", "activedirectoryinteractive",
        "activedirectorymsi", "activedirectoryserviceprincipal", "activedirectorydefault", "activedirectorydevicecode",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Address:
    """Where the database is and how to log in. Its repr shows no secret."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, url: str) -> Address:
        """Return the parts of a URL; opens nothing. Raises ConfigurationError (bad_url) if it cannot be used."""
        try:
            parts = urlsplit(url)
            port = parts.port or DEFAULT_PORT
        except ValueError:
            raise unreadable() from None
        database = unquote(parts.path.removeprefix("/"))
        if not parts.hostname or not database or "/" in database or "@" in database or parts.fragment:
            raise unreadable()
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if not f"{parts.hostname}{database}{user}{password}".isprintable():
            raise unreadable()
        return cls(parts.hostname, port, database, user, password, _options(parts))

    def connection_string(self) -> str:
        # No reconnect: the driver would make another connection, without the session's settings.
        pairs = [("Server", f"{self.host},{self.port}"), ("Database", self.database), ("ConnectRetryCount", "0")]
        if self.user:
            pairs += [("UID", self.user), *([("PWD", self.password)] if self.password else [])]
        given = {OPTIONS[name]: value for name, value in self.options}
        if not self.user and "Authentication" not in given:
            given["Trusted_Connection"] = "yes"
        pairs += given.items()
        return "".join(f"{word}={_braced(value)};" for word, value in pairs)


def _options(parts: SplitResult) -> tuple[tuple[str, str], ...]:
    # SQLAlchemy's URLs use the driver's own names: Encrypt, TrustServerCertificate.
    words = {word.lower(): name for name, word in OPTIONS.items()}
    given = [(words.get(name.lower(), name), value) for name, value in parse_qsl(parts.query, keep_blank_values=True)]
    problems = [f"there is no option {name!r}" for name, _ in given if name not in OPTIONS]
    problems += [f"{name} is given twice" for name in OPTIONS if sum(name == other for other, _ in given) > 1]
    problems += [
        f"{name} must be one of {', '.join(CHOICES[name])}"
        for name, value in given
        if name in CHOICES and value.lower() not in CHOICES[name]
    ]
    if problems:
        raise ConfigurationError(
            f"The SQL Server URL cannot be used: {'; '.join(problems)}.",
            hint=f"After the question mark it takes {', '.join(OPTIONS)}, for example ?encrypt=yes.",
            code="bad_url",
        )
    return tuple(given)


def _braced(value: str) -> str:
    """Put the value in braces, so that ; and = in a password are not read as the connection string's own."""
    return "{" + value.replace("}", "}}") + "}"


def unreadable() -> ConfigurationError:
    return ConfigurationError(
        "The SQL Server URL cannot be read (it is not repeated here, it may hold a password).",
        hint="Write mssql://host:1433/database, with user and password before the host as in postgresql://; special "
        "characters in them as %40, %2F etc.",
        code="bad_url",
    )
