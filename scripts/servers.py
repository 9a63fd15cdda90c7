"""Fetches every server that the tests start, with a word for each: inside a test nobody would see it, only wait."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from testkit.databases import mariadb_folder, postgres_folder
from testkit.jars import fetch_mirrormaker_classpath, fetch_tools_classpath
from twinshore.config.errors import TwinshoreError
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST, KAFKA_OLDEST, fetch_kafka_classpath

SERVERS: tuple[Callable[[], str | Path], ...] = (
    *(lambda version=version: fetch_kafka_classpath(version) for version in (KAFKA_NEWEST, KAFKA_3, KAFKA_OLDEST)),
    fetch_mirrormaker_classpath,
    fetch_tools_classpath,
    postgres_folder,
    mariadb_folder,
)


def main() -> None:
    """What cannot be had is said here and again by the tests that need it; all others still run."""
    for fetch in SERVERS:
        try:
            fetch()
        except TwinshoreError as error:
            print(f"setup: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
