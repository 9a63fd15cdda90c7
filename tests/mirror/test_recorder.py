"""What the store hears of links when several mirrors speak of one."""

from __future__ import annotations

from pathlib import Path

from twinshore.fleet import NamedPartition
from twinshore.mirror.desk import Account
from twinshore.mirror.orders import Carried, Stoppage
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


def account(*incidents: Stoppage, topic: str = "orders") -> Account:
    carried = Carried(topic, 0, 0, 5, 5, 50, 1, 9, 2, 1, 2)
    return Account(LINK, 0, (carried,), incidents, {})


def test_what_a_pump_took_for_gone_is_for_the_driver_to_name(tmp_path: Path) -> None:
    troubles: list[str] = []
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = Recorder(store, "first", 60, troubles.append)
        gone = [Stoppage("orders", number, "recreated topic", 5, 5, "is there no more") for number in range(3)]
        recorder.take(account(*gone, Stoppage("orders", 4, "corrupt batch", 5, 6, "crc")))
        recorder.close()
        assert [row.incident.kind.value for row in store.incidents()] == ["corrupt batch"]
        assert len(troubles) == 1
        assert recorder.doubted("north->west") == set()
        assert recorder.doubted(LINK) == {"orders"}
        assert recorder.doubted(LINK) == set(), "each is told once"


def test_a_topic_that_begins_anew_leaves_no_old_receipt_behind(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = Recorder(store, "first", 60, lambda _: None)
        recorder.take(account())
        recorder.take(account(topic="bills"))
        recorder.forget(LINK, "orders")
        recorder.close()
        assert [at.topic for at in store.positions(LINK)] == ["bills"]
        live = recorder.live[LINK]
        assert set(live.lag) == set(live.starts) == {NamedPartition("bills", 0)}
