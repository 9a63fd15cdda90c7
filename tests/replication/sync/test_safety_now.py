"""What a settings file forbids while a mirror runs, whatever becomes of the file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.errors import raises
from testkit.log_lines import LogLines
from twinshore.config.errors import ConfigError
from twinshore.config.settings import load_settings, parse_settings
from twinshore.replication.sync import deletion_guard
from twinshore.replication.sync.deletion_guard import NEVER_DELETE_REASON, SafetyPolicy

SETTINGS = """
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
"""
NEVER_DELETE = f"{SETTINGS}[safety]\nnever_delete = true\n"
DEEP = f"{SETTINGS}x = {'[' * 20_000}"
HUGE = f"{SETTINGS}[safety]\ndeletions_at_once_max = {'9' * 5_000}\n"
BAD: dict[str, bytes] = {
    "nothing at all": b"",
    "a line is half written": f"{SETTINGS}[safety]\nnever_delete = tru".encode(),
    "too deep for the parser": DEEP.encode(),
    "a number without an end": HUGE.encode(),
    "a wrong value": f"{SETTINGS}[safety]\nnever_delete = 1\n".encode(),
    "a section that is a number": b"links = 3\n",
    "no text": b"\xff\xfe",
    "zeroes": bytes(9),
}


class Place:
    def __init__(self, folder: Path, said: LogLines) -> None:
        self.file, self.said = folder / "settings.toml", said
        self.file.write_text(SETTINGS)
        self.now = SafetyPolicy(load_settings(self.file, {}), "east->west")

    def stands(self) -> str:
        """What the log, deletions and tasks are told of the file, all the same."""
        against = self.now.against()
        assert self.now.never_cut is bool(against)
        assert bool(self.said and "nothing is deleted or cut off now" in self.said[-1]) is (
            bool(against) and against != NEVER_DELETE_REASON
        )
        return against


@pytest.fixture
def place(tmp_path: Path, log_lines: LogLines) -> Place:
    return Place(tmp_path, log_lines)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("first", [True, False], ids=["at the first look", "later"])
def test_while_nobody_understands_the_file_nothing_is_deleted_or_cut(place: Place, bad: bytes, first: bool) -> None:
    if not first:
        assert place.stands() == ""
    place.file.write_bytes(bad)
    for _ in range(2):
        assert "cannot be understood" in place.stands()
    place.file.write_text(SETTINGS)
    assert place.stands() == ""
    assert place.said[-1] == "east->west: the settings file is understood again"
    place.file.write_text(NEVER_DELETE)
    assert place.stands() == NEVER_DELETE_REASON


@pytest.mark.parametrize("text", [DEEP, HUGE])
def test_a_file_beyond_the_parsers_limits_is_refused_in_words(text: str) -> None:
    with raises(ConfigError, "config.not-toml", path="settings.toml"):
        parse_settings(text, name="settings.toml", env={})


def test_a_file_that_is_moved_away_changes_nothing(place: Place) -> None:
    place.file.write_text("[safety\n")
    assert place.stands()
    place.file.rename(place.file.with_suffix(".bak"))
    assert place.stands(), "nobody has understood it since"
    place.file.write_text(SETTINGS)
    assert place.stands() == ""
    place.file.unlink()
    assert place.stands() == "", "what was known last holds"
    place.file.write_text(NEVER_DELETE)
    assert place.stands() == NEVER_DELETE_REASON
    place.file.unlink()
    assert place.stands() == NEVER_DELETE_REASON


def test_a_file_system_that_hangs_holds_up_nobody_for_long(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nobody writes into is opened as such a file is: not at all."""
    monkeypatch.setattr(deletion_guard, "READ_TIMEOUT_S", 0.2)
    assert place.stands() == ""
    place.file.unlink()
    os.mkfifo(place.file)
    began_s = time.monotonic()
    for _ in range(50):
        assert "cannot be understood" in place.stands()
    assert time.monotonic() - began_s < 5, "one question waits, and those behind it do not"
    pipe, reader = place.file.with_suffix(".pipe"), place.now._reader
    assert reader is not None and reader.is_alive()
    place.file.rename(pipe)
    place.file.write_text(SETTINGS)
    pipe.write_text("[safety\n")
    reader.join(20)
    until(lambda: place.stands() == "", place)


def until(holds: Callable[[], bool], place: Place) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, place.said
        time.sleep(0.05)
