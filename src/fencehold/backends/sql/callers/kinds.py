"""Recognizes what a caller gave as a connection: its library, the connection inside it, and its name for messages."""

from __future__ import annotations

import functools
from typing import Any

from fencehold.model.errors import ConfigurationError


def is_of(target: object, *packages: str) -> bool:
    """Whether the class of `target`, or one of its base classes, is from one of these packages.

    The packages need not be installed.
    """
    kind: Any = type(target)
    return _is_of(kind, packages)


@functools.lru_cache(maxsize=512)
def _is_of(kind: Any, packages: tuple[str, ...]) -> bool:
    modules = {base.__module__ for base in kind.__mro__}
    return any(module == one or module.startswith(f"{one}.") for module in modules for one in packages)


def is_class(target: object, *names: str) -> bool:
    """Whether the class of `target`, or one of its base classes, is named in `names`.

    A name is `package.Class`; the modules between the package and the class are left out.
    """
    return any(f"{base.__module__.partition('.')[0]}.{base.__name__}" in names for base in type(target).__mro__)


def unwrapped(target: Any) -> Any:
    """Return the connection or session to use: what a scoped session of SQLAlchemy, or Django's connection, contains.

    Anything else is returned unchanged. Raises ConfigurationError (bad_connection) if Django's connection is not open.
    """
    if is_of(target, "sqlalchemy.orm.scoping", "sqlalchemy.ext.asyncio.scoping"):
        return target()
    if is_of(target, "django") and hasattr(target, "ensure_connection"):
        if target.connection is None:
            raise ConfigurationError(
                "Django's connection is not open, so it is in no transaction; nothing was written.",
                hint="Use it inside `with transaction.atomic():`, in the same thread.",
                code="bad_connection",
            )
        return target.connection
    return target


def dialect_of(target: Any) -> str:
    """Return SQLAlchemy's name for the kind of database that `target` connects to; empty if it is unknown."""
    try:
        return str((target.get_bind() if hasattr(target, "get_bind") else target).dialect.name)
    except Exception:  # noqa: BLE001 - the statement itself then fails with the cause
        return ""


def kind_of(target: object) -> str:
    """Return the class of `target` for a message and, for SQLAlchemy, the kind of database it connects to."""
    name = f"{type(target).__module__}.{type(target).__qualname__}"
    return f"{name} on {found}" if is_of(target, "sqlalchemy") and (found := dialect_of(target)) else name


def begin_on(given: object) -> str:
    """Return a hint how to begin a transaction on `given`, for Django and SQLAlchemy; empty for other connections."""
    if is_of(given, "django"):
        return "Do it, and your own writes, inside `with transaction.atomic():`, in the same thread."
    if not is_of(given, "sqlalchemy"):
        return ""
    with_ = "async with" if is_of(given, "sqlalchemy.ext.asyncio") else "with"
    is_session = is_of(given, "sqlalchemy.orm") or hasattr(given, "sync_session")
    begin = f"`{with_} {'session' if is_session else 'connection'}.begin():`"
    return (
        f"Do it, and your own writes, inside {begin}, on an engine that is not in autocommit "
        '(isolation_level="AUTOCOMMIT", or the driver\'s own autocommit).'
    )
