"""What is measured under a load says nothing once the load has ended by itself."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bench.measure.in_trouble import Load
from testkit.figures import StageError


class Full:
    """A place whose disk is full from the second write on."""

    def __init__(self) -> None:
        self.asked, self.writes = threading.Event(), 0

    def write(self, _topic: str, records: int, _rate: float) -> int:
        self.writes += 1
        if self.writes > 1:
            self.asked.set()
            raise OSError("no space is left")
        return records


def test_a_load_that_ends_by_itself_is_told_of() -> None:
    place: Any = Full()
    with pytest.raises(StageError, match=": no space is left"), Load(place, "prices", 1e6):
        assert place.asked.wait(10)
