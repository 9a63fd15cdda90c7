"""What a line of a newer version speaks of is unknown, which is not none; and nothing is written over the line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testkit.errors import raises
from tests.fixtures.formats import samples
from twinshore.config.errors import KafkaError, RefusedError, UnsupportedError, WireError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.model import Cluster, Link
from twinshore.groups.sync import GROUPS_HOME_KIND, GroupsHomeAnnouncer, load_home, save_home
from twinshore.kafka.cluster import KafkaCluster
from twinshore.proxy.core.model import build_routes
from twinshore.replication.core.claim_records import LinkClaimState
from twinshore.replication.core.lineage import LineageRecords, is_confirmed
from twinshore.replication.core.ownership import compare_home_records, first_home_record
from twinshore.replication.core.topology_view import beat_ms
from twinshore.routing.core.home_records import (
    HomeLog,
    KeyValue,
    NewerLine,
    TwinLog,
    current_home,
    home_key,
    newer_hint,
    newer_in_words,
    read_line,
)
from twinshore.routing.core.subscribers import HomeSubscription, Pause, SubscriberLog, WriteTo
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.core.values import HomeRow, LinkStateRow
from twinshore.state.store import open_store
from twinshore.switch.announce import HomeAnnouncer
from twinshore.switch.core.acl_rules import missing_home_records
from twinshore.switch.core.unreplicated import RescueCopies, read_header, read_lines

FIRST, MOVED, SWITCH = samples.FIRST, samples.MOVED, samples.SWITCH
LINK, IDS = Link("east", "west"), (samples.EAST, samples.WEST)
NEWER: KeyValue = (home_key("orders"), b'{"v":2,"at":{"cluster":"north"}}')
HIGHER = replace(MOVED, term=3)


def newer(line: KeyValue) -> KeyValue:
    """The same of the next version."""
    return line[0], json.dumps({**json.loads(line[1] or b""), "v": 2}).encode()


def told(*lines: KeyValue) -> HomeLog:
    log = HomeLog()
    for line in lines:
        log.take(*line)
    return log


UNKNOWN = told(NEWER).homes["orders"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (b'{"a":1}', {"a": 1}),
        (b'{"v":1,"a":1}', {"v": 1, "a": 1}),
        (b'{"v":2,"a":1}', NewerLine(2)),
        (b'{"v":1e0}', None),
        (b'{"v":true}', None),
        (b'{"v":0}', None),
        (b"[]", None),
        (b"", None),
        (None, None),
    ],
)
def test_one_function_says_what_can_be_read(value: bytes | None, read: object) -> None:
    assert read_line(value) == read


@given(st.lists(st.sampled_from([FIRST.line(), MOVED.line(), HIGHER.line(), NEWER]), max_size=6))
def test_a_topic_with_such_a_line_has_an_unknown_home_wherever_the_line_lies(lines: list[KeyValue]) -> None:
    log = told(*lines)
    if NEWER in lines:
        assert log.homes == {"orders": UNKNOWN}
        assert log.mending() == [], "nothing is written over it"
        assert log.is_superseded(HIGHER)
        assert not log.is_current(HIGHER)
    log.take(NEWER[0], None)
    assert log.homes == {}
    log.take(*MOVED.line())
    assert log.homes == {"orders": MOVED}, "it was taken away"


def test_nobody_writes_an_unknown_home() -> None:
    with raises(UnsupportedError, "routing.newer-home"):
        UNKNOWN.line()


class Tail:
    """A log of one process."""

    def __init__(self, *lines: KeyValue) -> None:
        self.lines, self.state_topic, self._read = [*lines], self, 0

    def read(self, log: HomeLog, _: HomeLog) -> HomeLog:
        for line in self.lines[self._read :]:
            log.take(*line)
        self._read = len(self.lines)
        return log

    def append(self, lines: Iterable[KeyValue], _: int) -> None:
        self.lines += lines


def notes(name: str, *lines: KeyValue) -> Any:
    found: Any = HomesTopic(KafkaCluster(Cluster(name, ("127.0.0.1:1",)), patience_s=0.1))
    found._tail = Tail(*lines)
    return found


def test_whoever_wants_to_write_there_is_refused_with_what_to_do() -> None:
    ours = notes("east", FIRST.line(), NEWER)
    with pytest.raises(KafkaError, match=r"twinshore.homes on east: .*v 2.* topic orders") as refused:
        ours.say([MOVED], 1)
    assert refused.value.hint == newer_hint()
    assert not refused.value.retriable
    assert len(ours._tail.lines) == 2
    assert ours.say([replace(MOVED, topic="bills")], 1)["bills"].term == 2, "other topics go on"


def test_a_switch_refuses_to_move_a_topic_with_an_unknown_home() -> None:
    record: Any = type("Record", (), {"names": lambda _: ("orders",), "topics": (), "kind": None})()
    with (
        closing(KafkaCluster(Cluster("east", ("127.0.0.1:1",)))) as east,
        closing(KafkaCluster(Cluster("west", ("127.0.0.1:1",)))) as west,
    ):
        words: Any = HomeAnnouncer(east, west)
        words._homes_topics = {"east": notes("east", FIRST.line()), "west": notes("west", NEWER)}
        for ask in (words._told, words.has_promoted, words.announce_to_old_home, words.tell):
            with pytest.raises(RefusedError, match="newer version"):
                ask(record)


def test_a_claim_of_a_newer_version_holds_its_topic() -> None:
    key, value = newer((f'["claim","orders","{SWITCH}"]'.encode(), b"{}"))
    log = told((key, value))
    holder = log.holder("orders")
    assert holder is not None
    assert (holder.switch, holder.by) == (SWITCH, "a newer version (v 2)")
    log.take(key, None)
    assert log.holder("orders") is None


def test_a_record_of_a_newer_version_is_there_and_left_as_it_is() -> None:
    log = HomeLog()
    part, head = log.records.lines(SWITCH, samples.RECORD)
    for line in (part, newer(head), head):
        log.take(*line)
    assert log.records.switches() == [SWITCH]
    assert (log.records.record(SWITCH), log.records.digest(SWITCH)) == (None, "v2")
    assert (log.records.tombstones(SWITCH), log.records.spent(SWITCH), log.records.mending()) == ([], [], [])
    ours = notes("west", part, newer(head))
    for known_by in ("", "v2"):
        with raises(RefusedError, "routing.switch-newer"):
            ours.save(SWITCH, samples.RECORD, known_by, 1)
    log.take(head[0], None)
    assert log.records.switches() == []


def test_a_follower_of_a_newer_version_is_waited_for_whatever_it_writes() -> None:
    log = SubscriberLog()
    key, value = newer(samples.FOLLOWER.line())
    log.take(key, value, 0.0)
    awaited = log.awaited({"anything": (2, 1)}, 59.0)
    assert [one.name for one in awaited["anything"]] == ["a client of a newer version (v 2)"]
    assert log.gathering("anything", (2, 1), 59.0)
    assert log.awaited({"anything": (2, 1)}, 61.0) == {}, "a lease is the longest that there is"
    log.take(*replace(samples.FOLLOWER, said=1).line(), 1.0)
    assert "anything" not in log.awaited({"anything": (2, 1)}, 2.0), "it was put back to this version"


def test_a_client_parks_and_goes_on_where_it_was_once_the_line_is_gone() -> None:
    following = HomeSubscription("1" * 32, "shop", ["orders"], ["east", "west"], "east")
    for at_s, lines in ((0.0, {"orders": FIRST}), (1.0, {"orders": UNKNOWN}), (2.0, {"orders": FIRST}), (3.0, {})):
        for cluster, cluster_id in (("east", samples.EAST), ("west", samples.WEST)):
            following.met(cluster, cluster_id)
            following.said(cluster, following.says(), at_s, at_s)
            following.read(cluster, lines, at_s + 0.1)
        order = following.order("orders", at_s + 0.2)
        if lines.get("orders") is UNKNOWN:
            assert isinstance(order, Pause)
            assert "newer version" in order.why
            assert following.unread() == {"orders": UNKNOWN}
        else:
            assert order == WriteTo("east", 1)
        assert following.told() == {"orders": FIRST}, "it is no word, and is not remembered"


def test_what_was_heard_before_counts_until_every_cluster_was_read() -> None:
    following = HomeSubscription("1" * 32, "shop", ["orders"], ["east"], "east", unread={"orders": UNKNOWN})
    following.met("east", "east")
    following.said("east", following.says(), 0.0, 0.0)
    assert isinstance(following.order("orders", 0.0), Pause)
    following.read("east", {}, 0.1)
    assert following.order("orders", 0.2) == WriteTo("east", 0)


def test_behind_a_proxy_nobody_writes_to_it() -> None:
    names = {samples.EAST: "east", samples.WEST: "west"}
    before = build_routes({"orders": MOVED}, names, {}, 0)
    assert before["orders"].cluster == "west"
    found = build_routes({"orders": UNKNOWN, "bills": UNKNOWN}, names, before, 0)
    assert found["orders"] == before["orders"]._replace(held=True)
    assert (found["bills"].cluster, found["bills"].held) == (None, True)
    assert build_routes({"orders": MOVED}, names, found, 0)["orders"].held is False


def test_it_is_above_all_that_other_clusters_say() -> None:
    assert current_home([MOVED, UNKNOWN, HIGHER]) == UNKNOWN
    assert current_home([None, UNKNOWN]) == UNKNOWN


def test_a_mirror_carries_the_topic_nowhere_and_tells_its_target_nothing() -> None:
    rows = {"orders": HomeRow("east<>west", "orders", "east", 1, 1, "link east->west")}
    found = compare_home_records(LINK, IDS, [{"orders": FIRST}, {"orders": UNKNOWN}], rows)
    assert not found.records
    assert found.unread == {"orders"}
    assert found.doubts["orders"] == newer_in_words("orders", 2, "west")
    for logs in ((FIRST, UNKNOWN), (UNKNOWN, None), (UNKNOWN, UNKNOWN)):
        assert first_home_record(LINK, "orders", IDS, logs, is_twin=False, now_ms=1) is None


def test_an_old_home_with_such_a_line_is_told_nothing() -> None:
    row = HomeRow("east<>west", "orders", "west", 2, 1, "anna")
    assert missing_home_records(["orders"], {"orders": row}, samples.WEST, {"orders": MOVED}, {"orders": FIRST}) == (
        MOVED,
    )
    assert missing_home_records(["orders"], {"orders": row}, samples.WEST, {"orders": MOVED}, {"orders": UNKNOWN}) == ()
    assert missing_home_records(["orders"], {"orders": row}, samples.WEST, {"orders": UNKNOWN}, {}) == ()


def test_a_links_notes_of_a_newer_version_are_known_and_left_as_they_are() -> None:
    link = LinkClaimState("east->west", samples.EAST)
    (twin,) = link.twin_lines(samples.EXACT, ())
    for line in (link.claim_line(samples.CLAIM), link.writer_line(samples.WRITER), twin):
        link.take(*newer(line))
    holder = link.holder()
    assert holder is not None
    assert (holder.store, holder.host) == (samples.STORE, "a newer version (v 2)")
    assert (link.writer, link.newer_writer, link.newer_twins) == (None, 2, {("orders", 0): 2})
    assert link.twin_lines(samples.EXACT, ()) == []
    for line in (link.writer_line(samples.WRITER), twin):
        link.take(*line)
    assert (link.writer, link.newer_writer, link.newer_twins) == (samples.WRITER, 0, {})


def test_of_a_topic_with_such_a_note_nobody_says_that_it_is_no_twin() -> None:
    link, log, lines = LinkClaimState("east->west", samples.EAST), TwinLog(), LineageRecords()
    (twin,) = link.twin_lines(samples.EXACT, ())
    descent = (b"east.orders", samples.DESCENT.to_json("east->west"))
    for line in (twin, newer(twin), newer(descent)):
        log.take(*line)
        lines.take(*line)
    assert not log.twins()
    assert log.may_be() == {"orders", "east.orders"}
    assert lines.unread == {"east.orders": 2}
    assert is_confirmed(lines.written(), samples.DESCENT), "what it says may be just this"
    for line in (twin, descent):
        log.take(*line)
        lines.take(*line)
    assert log.twins() == {samples.TARGET_ID}
    assert not log.may_be() and not lines.unread


def test_of_a_heartbeat_of_a_newer_version_its_time_stamp_counts() -> None:
    assert beat_ms(b'{"v":2,"at_ms":5}') is None


def test_rescued_records_of_a_newer_version_are_named_as_such() -> None:
    tail = [(key, value) for name, (_, key, value) in samples.lines().items() if name.startswith("rescued")]
    copies = RescueCopies()
    for key, value in (newer(tail[0]), *tail[1:]):
        copies.take(1, key, value)
    assert copies.whole == {}
    texts = [(newer(line)[1] or b"").decode() for line in tail]
    with pytest.raises(WireError, match="newer version") as refused:
        read_header(texts[0], "a file")
    assert refused.value.hint == "read it with that version"
    for line in texts[1:]:
        with pytest.raises(WireError, match="newer version"):
            list(read_lines([line], "a file"))


def test_where_groups_are_at_home_by_a_newer_version_is_not_forgotten(tmp_path: Path) -> None:
    newest = replace(MOVED, topic=GROUPS_HOME, term=9)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        save_home(store, replace(FIRST, topic=GROUPS_HOME))
        key, value = newer(newest.line())
        store.link_states.remember(
            [LinkStateRow(GROUPS_HOME, GROUPS_HOME_KIND, key.decode(), (value or b"").decode(), "", 1)]
        )
        save_home(store, newest)
        found = load_home(store)
        assert found is not None
        assert found.newer == 2
        relay = GroupsHomeAnnouncer(store, [])
        ours = notes("east")
        relay._homes_topics = {"east": ours}
        relay.turn(10.0)
        assert ours._tail.lines == [], "nobody hears of it from this version"
