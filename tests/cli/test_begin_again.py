"""`twinshore mirror begin-again`: which topics it agrees to, and which it refuses; `forget` where it is the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from twinshore.fleet import ConfigError, RefusedError, SourceOffset, TargetOffset
from twinshore.fleet.extents import Extent
from twinshore.store import Incident, IncidentKind, TwinRow


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The exact topic orders and the mapped topic bills, both made again."""
    found = write_settings(tmp_path, f'[links."{LINK}"]\nmode = "mapped"\n')
    with opened(found) as store:
        store.save_twins([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
        extent = Extent(SourceOffset(10), TargetOffset(70), 0, 0)
        store.adopt([(TwinRow(LINK, "bills", 0, "cc", "dd", 10, 0, 1), extent)])
        for topic in ("orders", "bills"):
            row = Incident(LINK, topic, -1, IncidentKind.RECREATED_TOPIC, -1, -1, "stop the topic", f"{topic} again.")
            store.add_incident(row, now_ms=1)
    return found


def agreed(file: Path) -> list[str]:
    with opened(file) as store:
        return [row.subject for row in store.followed(LINK, "begin again")]


def begin_again(file: Path, *words: str) -> str:
    return asking.run(file, "mirror", "begin-again", *words)


def test_a_topic_that_was_made_again_is_agreed_to(file: Path) -> None:
    assert "would begin again" in begin_again(file, "orders", "--dry-run")
    assert agreed(file) == []
    assert "orders begins again" in begin_again(file, "orders")
    assert agreed(file) == ["orders"]


def test_a_topic_that_nothing_stopped_is_not(file: Path) -> None:
    with pytest.raises(ConfigError, match="not stopped for being made again") as found:
        begin_again(file, "order")
    assert "did you mean orders" in found.value.hint


@pytest.mark.parametrize("words", [["bills"], ["bills", "--dry-run"]])
def test_a_mapped_topic_is_refused_with_the_way_that_there_is(file: Path, words: list[str]) -> None:
    with pytest.raises(RefusedError, match="bills of east->west is mapped") as found:
        begin_again(file, *words)
    assert "`twinshore mirror forget bills`" in found.value.hint
    assert agreed(file) == []


def test_a_forgotten_topic_waits_for_no_word_any_more(file: Path) -> None:
    with opened(file) as store:
        for kind in (IncidentKind.DELETED_TOPIC, IncidentKind.FOREIGN_WRITE):
            store.add_incident(Incident(LINK, "bills", -1, kind, -1, -1, "keep the twin", "it is kept"), now_ms=2)
    asking.run(file, "mirror", "forget", "bills")
    with opened(file) as store:
        assert [row.incident.topic for row in store.incidents(LINK, open_only=True)] == ["orders"]
        assert store.reached(LINK) == {}
