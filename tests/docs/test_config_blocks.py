"""Configuration on the pages is well-formed, and their SQL runs on the databases that the marker names."""

from __future__ import annotations

import configparser
import functools
import json
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import yaml

from tests.docs.blocks import Block, all_blocks
from tests.tidy import tsql

BLOCKS = [block for block in all_blocks() if block.marker.kind == "config"]
PARSERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "yaml": yaml.safe_load,
    "toml": tomllib.loads,
    "ini": lambda text: configparser.ConfigParser(interpolation=None).read_string(text),
}
STATEMENTS = [(block, database) for block in BLOCKS if block.language == "sql" for database in block.marker.on]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language != "sql"], ids=str)
def test_it_can_be_parsed(block: Block) -> None:
    PARSERS[block.language](block.text)


@pytest.mark.parametrize(("block", "database"), STATEMENTS, ids=str)
def test_the_statements_run_beside_our_tables(
    block: Block, database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if database == "sqlite":
        with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
            connection.executescript(our_tables("sqlite") + block.text)
    elif database == "postgres":
        with psycopg.connect(request.getfixturevalue("postgres_url"), autocommit=True) as connection:
            for text in (our_tables("postgres"), block.text):
                connection.execute(text.encode())
    else:
        assert [tree for batch in tsql.batches(block.text) for tree in tsql.parsed(batch)]


@functools.cache
def our_tables(dialect: str) -> str:
    """Those of leases, an outbox and items, and the service's."""
    ours = ["fencehold.cli", "sql", "init", "--outbox", "outbox", "--items"]
    services = ["submission_manager.cli", "sql", "init"]
    commands = [[sys.executable, "-m", *one, "--dialect", dialect] for one in (ours, services)]
    return "\n".join(subprocess.run(one, check=True, capture_output=True, text=True).stdout for one in commands)
