"""A logging handler of the application's own."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from testkit.log_lines import LogLines


@pytest.fixture
def raising_handler(log_lines: LogLines) -> Iterator[None]:
    """Raises at each line that the client logs."""

    class Raises(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            assert log_lines, "which has the line already"
            raise BrokenPipeError

    log, handler = logging.getLogger("twinshore"), Raises()
    log.addHandler(handler)
    yield
    log.removeHandler(handler)
