"""Fetches every server that the tests start, with a word for each: inside a test nobody would see it, only wait."""

from __future__ import annotations

import sys

from twinshore.fleet import TwinshoreError
from twinshore.lab import KAFKA_3, KAFKA_NEWEST, KAFKA_OLDEST, connect_mirror_classpath, kafka_classpath
from twinshore.lab.binaries import mariadb_folder, postgres_folder


def main() -> int:
    """Exit code 1 where something cannot be had."""
    try:
        for version in (KAFKA_NEWEST, KAFKA_3, KAFKA_OLDEST):
            kafka_classpath(version)
        connect_mirror_classpath()
        postgres_folder()
        mariadb_folder()
    except TwinshoreError as error:
        print(f"setup: {error.message}" + (f"\n  try: {error.hint}" if error.hint else ""), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
