"""A role of PostgreSQL that may do less than its owner, for tests of rights and logins."""

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

PASSWORD = "hunter2-pass"


class Role:
    """Logs in with `url`; the owner changes what it may do with `owner_says`."""

    def __init__(self, owner_url: str, name: str) -> None:
        self.name = name
        self.owner_url = owner_url
        info = conninfo_to_dict(owner_url)
        self.url = f"postgresql://{name}:{PASSWORD}@127.0.0.1:{info['port']}/{info['dbname']}"
        self.owner_says("CREATE ROLE {} LOGIN PASSWORD {}", PASSWORD)

    def owner_says(self, statement: str, *literals: str) -> None:
        """Run it as the owner; the first {} is the role's name, the others are these texts."""
        composed = sql.SQL(statement).format(sql.Identifier(self.name), *map(sql.Literal, literals))
        with psycopg.connect(self.owner_url, autocommit=True) as conn:
            conn.execute(composed)

    def may_use_all_tables(self) -> None:
        self.owner_says("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {}")
        self.owner_says("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {}")

    def cut_off(self) -> None:
        """End its sessions: it has to log in again."""
        with psycopg.connect(self.owner_url, autocommit=True) as conn:
            conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (self.name,))

    def drop(self) -> None:
        self.owner_says("DROP OWNED BY {}")
        self.owner_says("DROP ROLE {}")
