"""What the store hears of links when several mirrors speak of one."""

from __future__ import annotations

from pathlib import Path

from twinshore.mirror.recorder import Recorder
from twinshore.store import open_store

LINK = "east->west"


def test_who_stands_by_does_not_write_over_the_word_of_who_carries(tmp_path: Path) -> None:
    troubles: list[str] = []
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        carrying = Recorder(store, "first", 60, troubles.append)
        standing = Recorder(store, "second", 60, troubles.append)
        carrying.say(LINK, "flowing", "2 partitions on 1 lanes", 1)
        standing.say(LINK, "standby", "carried by first; standing by", 0)
        carrying.close()
        standing.close()
        (word,) = store.link_statuses()
        assert (word.owner, word.state, word.sentence) == ("first", "flowing", "2 partitions on 1 lanes")
    assert troubles == []


def test_who_stands_by_alone_says_so(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        standing = Recorder(store, "second", 60, lambda _: None)
        standing.say(LINK, "standby", "taking the lease", 0)
        standing.close()
        (word,) = store.link_statuses()
        assert (word.owner, word.state) == ("second", "standby")
