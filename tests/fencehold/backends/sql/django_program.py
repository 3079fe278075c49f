"""A Django program without a web server, which says what came of each try.

python -m tests.fencehold.backends.sql.django_program URL
"""

import sys
from collections.abc import Callable
from typing import Any

import django
from django.conf import settings
from django.db import connection, transaction

import fencehold
from fencehold import sync
from tests.fencehold.testing.conformance.foreign_callers import django_settings, of_postgres


def configured(url: str) -> None:
    is_file = url.startswith("sqlite")
    database = django_settings("sqlite3", url.removeprefix("sqlite:///")) if is_file else of_postgres(url)
    settings.DATABASES["default"] = database
    django.setup()


def code_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except fencehold.FenceholdError as error:
        return f"{error.code} {error.hint}"
    return "done"


def main(url: str) -> None:
    configured(url)
    with sync.connect(url) as store:
        outbox = store.outbox("outbox")
        store.init()
        try:
            outbox.add("a", 1, tx=connection)
        except fencehold.ConfigurationError as error:
            print("before it is open:", error.code, error.hint)
        connection.ensure_connection()
        print("outside atomic:", code_of(lambda: outbox.add("a", 2, tx=connection)))
        with transaction.atomic():
            print("inside:", code_of(lambda: outbox.add("a", "kept", tx=connection)))
            with transaction.atomic():
                outbox.add("a", "kept with a savepoint", tx=connection)
        with transaction.atomic():
            outbox.add("a", "rolled back", tx=connection)
            transaction.set_rollback(True)
        print("stored:", [claim.payload for claim in outbox.claim(10, "ada")])
        with store.leader("job") as leader:
            assert leader.wait_for_leadership(20)
            term = leader.term
            assert term is not None
            print("fence outside:", code_of(lambda: term.fence(connection)))
            with transaction.atomic():
                print("fence inside:", code_of(lambda: term.fence(connection)))


if __name__ == "__main__":
    main(sys.argv[1])
