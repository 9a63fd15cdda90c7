"""Twinshore's log lines, kept in a list."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from twinshore.runtime.logging import ROOT_LOGGER


class LogLines(list[str]):
    """Messages in order. `records` has their levels, loggers and fields."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def of(self, logger: str = "", **fields: object) -> list[str]:
        """The messages of loggers that begin so, with these fields."""
        return [
            record.getMessage()
            for record in list(self.records)
            if record.name.startswith(logger) and fields.items() <= vars(record).items()
        ]


class _Keeper(logging.Handler):
    def __init__(self, lines: LogLines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.records.append(record)
        self._lines.append(record.getMessage())


@contextmanager
def keep_log_lines() -> Iterator[LogLines]:
    """Keeps the lines of all threads within the block."""
    root, lines = logging.getLogger(ROOT_LOGGER), LogLines()
    keeper, level = _Keeper(lines), root.level
    root.addHandler(keeper)
    root.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        root.removeHandler(keeper)
        root.setLevel(level)
