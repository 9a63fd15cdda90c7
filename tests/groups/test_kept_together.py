"""Groups whose readers write to other topics: no place of theirs is known before what was written has crossed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.groups.model_sides import ModelSide
from tests.groups.test_direction import PARTS, SCOPE, TWINS
from twinshore.config.errors import KafkaError
from twinshore.config.model import Link, TopicPartition
from twinshore.groups.cluster_groups import SyncDirection
from twinshore.groups.core.commit_rules import EXACT_TRANSLATION, SyncScope, output_patterns, output_topics
from twinshore.groups.core.sync_state import SyncRoundResult, SyncState
from twinshore.groups.output_groups import ENDS_REFRESH_INTERVAL_S, LinkOutputReplication, OutputAwareGroups
from twinshore.groups.sync import build_status, compared_groups, last_compared_status
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple

INVOICES: list[TopicPartitionTuple] = [("invoices", 0), ("invoices", 1)]
RULES = (("billing", ("invoices",)), (".*-app", ("{group}-.*",)))


def held(kept: OutputAwareGroups) -> set[str]:
    """Groups with offsets, none of them released yet."""
    return set(kept._raw.keys() - kept._released.keys())


class Logs:
    """The topics of a link: how long they are on the source, and how far they have crossed."""

    def __init__(self) -> None:
        self.partitions = {"orders": 2, "invoices": 2}
        self.source = dict.fromkeys(INVOICES, 0)
        self.target = dict.fromkeys(INVOICES, 0)
        self.away = False
        self.twinless: set[str] = set()
        self.now = SCOPE

    def scope(self) -> SyncScope:
        return self.now

    def topics(self) -> Mapping[str, int]:
        if self.away:
            raise KafkaError("east is away", retriable=True)
        return self.partitions

    def ends(self, parts: Sequence[TopicPartitionTuple]) -> dict[TopicPartitionTuple, int]:
        return {where: self.source[where] for where in parts if where in self.source}

    def crossed(self, parts: Sequence[TopicPartitionTuple]) -> dict[TopicPartitionTuple, int]:
        return {where: self.target[where] for where in parts if where[0] not in self.twinless}


class Stage:
    """Billing reads orders and writes an invoice for each, by turns to both partitions; and rounds."""

    def __init__(self) -> None:
        self.east, self.west, self.logs = ModelSide("east"), ModelSide("west"), Logs()
        self.west.ends = dict.fromkeys(TWINS.values(), 1000)
        self.now_s = 0.0
        self.kept = OutputAwareGroups(self.east, RULES, self.logs, clock=lambda: self.now_s)
        self.direction = SyncDirection(
            self.kept, self.west, self.west, SyncState(1000.0, 1e9), clock=lambda: self.now_s
        )
        self.read = 0

    def process(self, records: int, group: str = "billing") -> None:
        for _ in range(records):
            self.logs.source[INVOICES[self.read % 2]] += 1
            self.read += 1
        self.east.groups[group] = {PARTS[0]: CommittedOffset(self.read)}

    def cross(self, where: TopicPartitionTuple, records: int) -> None:
        self.logs.target[where] = min(self.logs.source[where], self.logs.target[where] + records)

    def turn(self) -> None:
        self.now_s += 1.0
        here, there = self.east.listed(), self.west.listed()
        self.direction.turn(self.logs.now, here, there, lambda _: True, self.now_s)

    def there(self, group: str = "billing") -> int:
        place = self.west.groups.get(group, {}).get(TWINS[PARTS[0]])
        return place.offset if place else 0


def test_which_topics_a_group_writes_to() -> None:
    topics = ("invoices", "my.app-app-store-changelog", "myxapp-app-store-changelog", "my.app-app")
    assert output_topics(RULES, "billing", topics) == {"invoices"}
    assert output_topics(RULES, "my.app-app", topics) == {"my.app-app-store-changelog"}, "its name is no expression"
    assert output_topics(((".*", (".*",)), *RULES), "billing", topics) == set(topics)
    assert output_patterns(RULES, "reports") == ()


def test_a_place_waits_for_what_was_written_before_it_and_for_nothing_that_came_later() -> None:
    stage = Stage()
    stage.process(10)
    for _ in range(3):
        stage.turn()
    assert stage.there() == 0
    assert "invoices" in stage.kept.waiting["billing"].words
    stage.process(10)
    for where in INVOICES:
        stage.cross(where, 5)
    stage.turn()
    assert stage.there() == 10, "the first ten invoices are there, and more are written all the time"
    for where in INVOICES:
        stage.cross(where, 5)
    stage.turn()
    assert (stage.there(), stage.kept.waiting) == (20, {})


def test_who_is_not_named_waits_for_nothing_and_a_reset_for_nothing_either() -> None:
    stage = Stage()
    stage.process(10, "reports")
    stage.turn()
    assert stage.there("reports") == 10
    stage.process(10)
    for where in INVOICES:
        stage.cross(where, 99)
    stage.turn()
    assert stage.there() == 20
    stage.logs.source[INVOICES[0]] += 1
    stage.east.groups["billing"] = {PARTS[0]: CommittedOffset(7)}
    for _ in range(2):
        stage.turn()
    assert stage.there() == 7
    del stage.east.groups["billing"][PARTS[0]]
    stage.east.groups["billing"][PARTS[1]] = CommittedOffset(3)
    stage.turn()
    assert TWINS[PARTS[1]] not in stage.west.groups["billing"], "the place of another partition waits as well"


@pytest.mark.parametrize("what", ["lost by the source", "topic deleted"])
def test_what_the_source_has_no_more_is_not_waited_for_in_vain(what: str) -> None:
    stage = Stage()
    stage.process(10)
    stage.turn()
    if what == "topic deleted":
        stage.logs.partitions = {"orders": 2}
    else:
        stage.logs.source = dict.fromkeys(INVOICES, 3)
        for where in INVOICES:
            stage.cross(where, 3)
    stage.turn()
    assert stage.there() == 0
    stage.now_s += ENDS_REFRESH_INTERVAL_S
    stage.turn()
    assert stage.there() == 10


@pytest.mark.parametrize("what", ["no twin", "no end"])
def test_a_topic_without_a_twin_or_an_end_holds_the_group_and_is_told(what: str) -> None:
    stage = Stage()
    if what == "no twin":
        stage.logs.twinless.add("invoices")
    else:
        del stage.logs.source[INVOICES[1]]
        stage.logs.source[INVOICES[0]] = 5
    stage.process(1)
    for where in INVOICES[:1]:
        stage.cross(where, 99)
    for _ in range(3):
        stage.turn()
    assert stage.there() == 0
    assert stage.kept.waiting["billing"].in_vain
    assert stage.kept.waiting["billing"].since_s == 1.0
    stage.logs.twinless.clear()
    stage.logs.source.setdefault(INVOICES[1], 0)
    stage.turn()
    assert (stage.there(), stage.kept.waiting) == (1, {})


def test_clusters_that_do_not_answer_hold_the_groups_that_write_and_no_other() -> None:
    stage = Stage()
    stage.logs.away = True
    stage.process(1)
    stage.east.groups["reports"] = {PARTS[0]: CommittedOffset(1)}
    stage.turn()
    assert (stage.there(), stage.there("reports")) == (0, 1)
    assert stage.kept.waiting["billing"].words == "its places wait: east is away"
    stage.logs.away = False
    for where in INVOICES:
        stage.cross(where, 9)
    stage.turn()
    assert stage.there() == 1


def test_a_coordinator_that_moves_and_lists_nothing_for_a_moment_lets_no_old_place_pass_for_a_new_one() -> None:
    stage = Stage()
    stage.process(2)
    for where in INVOICES:
        stage.cross(where, 9)
    stage.turn()
    stage.process(2)
    stage.turn()
    assert stage.there() == 2
    stage.east.hidden.add("billing")
    stage.turn()
    stage.east.hidden.clear()
    stage.turn()
    for where in INVOICES:
        stage.cross(where, 9)
    stage.turn()
    assert stage.there() == 4


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("process"), st.just(0), st.integers(1, 5)),
            st.tuples(st.just("cross"), st.integers(0, 1), st.integers(1, 5)),
            st.tuples(st.just("turn"), st.just(0), st.just(0)),
        ),
        max_size=60,
    )
)
def test_whatever_crosses_first_the_place_never_passes_what_was_made(steps: list[tuple[str, int, int]]) -> None:
    stage = Stage()
    for what, which, count in steps:
        if what == "process":
            stage.process(count)
        elif what == "cross":
            stage.cross(INVOICES[which], count)
        else:
            stage.turn()
        # Of the first n records, half of the invoices are in either partition.
        made = stage.there()
        assert stage.logs.target[INVOICES[0]] >= (made + 1) // 2
        assert stage.logs.target[INVOICES[1]] >= made // 2
    for where in INVOICES:
        stage.cross(where, 999)
    for _ in range(2):
        stage.turn()
    assert stage.there() == stage.read


def test_a_group_that_is_set_back_climbs_only_with_what_it_writes_then() -> None:
    stage = Stage()
    stage.process(100)
    for where in INVOICES:
        stage.cross(where, 999)
    stage.turn()
    stage.turn()
    assert stage.there() == 100
    stage.process(1)  # from here on nothing crosses
    stage.turn()
    stage.read = 0
    stage.east.groups["billing"] = {PARTS[0]: CommittedOffset(0)}
    for _ in range(3):
        stage.turn()
    for _ in range(8):
        stage.turn()
        assert stage.there() == 0, "of what it makes anew nothing has crossed"
        stage.process(10)
    for where in INVOICES:
        stage.cross(where, 999)
    stage.turn()
    stage.turn()
    assert stage.there() == 80


@pytest.mark.parametrize("carried", [100, 0])
def test_the_word_of_a_group_that_waits_is_not_that_it_stands_the_same(carried: int) -> None:
    stage = Stage()
    stage.process(100)
    for where in INVOICES:
        stage.cross(where, carried)
    stage.turn()
    stage.turn()
    stage.process(900)
    stage.turn()
    entries = stage.direction.sync_state.groups
    waiting = {name: (one.since_s, stage.kept.lag_of(name)) for name, one in stage.kept.waiting.items()}
    word = build_status(entries, SyncRoundResult(groups=1), now_s=stage.now_s, now_ms=1, waiting=waiting)
    # Of a group that never had a place on the target nobody can say by how much it is behind.
    behind = 900 if carried else 0
    assert (word["states"], word["behind"], word["waits"]) == ({"waits": 1}, behind, ["billing"])
    assert last_compared_status(word, compared_groups(entries), "billing") == ("waits", behind)


def test_a_group_that_is_held_back_is_left_out_and_is_not_taken_for_one_that_was_heard() -> None:
    stage = Stage()
    stage.process(10)
    wanted = {0: {"billing": None}}
    assert stage.kept.places(wanted, {}) == ({}, {})
    assert held(stage.kept) == {"billing"}
    here, there = stage.east.listed(), stage.west.listed()
    turn = stage.direction.turn(SCOPE, here, there, lambda _: True, 1.0)
    assert turn.told == {}
    for where in INVOICES:
        stage.cross(where, 5)
    stage.turn()
    assert (held(stage.kept), stage.there()) == (set(), 10)


class Hiding:
    """A cluster that lists no topic that this user may not see, and says so of one that is named."""

    def __init__(self, ends: dict[TopicPartitionTuple, int]) -> None:
        self.ends, self.hidden = ends, set[str]()

    def metadata(self, topics: Sequence[str] | None, **_: object) -> SimpleNamespace:
        every = {name: 29 if name in self.hidden else 0 for name in ("orders", "invoices")}
        said = {name: error for name, error in every.items() if (name in topics if topics else not error)}
        return SimpleNamespace(
            topics={
                name: SimpleNamespace(error=error, topic_id=name.encode(), partitions=[] if error else [0, 1])
                for name, error in said.items()
            }
        )

    def offsets_of_each(
        self, named: Sequence[TopicPartition], _which: object
    ) -> tuple[dict[TopicPartition, int], None]:
        asked = {one: (one.topic, one.partition) for one in named if one.topic not in self.hidden}
        return {one: self.ends[where] for one, where in asked.items()}, None


@pytest.mark.parametrize("first", [True, False])
def test_a_topic_that_is_hidden_is_waited_for_as_one_that_is_seen(first: bool) -> None:
    stage, west = Stage(), Hiding(dict.fromkeys(INVOICES, 0))
    receipts: dict[TopicPartitionTuple, int] = {}
    east = Hiding(stage.logs.source)
    scope = SyncScope(
        {where: (where, EXACT_TRANSLATION) for where in INVOICES}, (("invoices", "invoices", b"invoices".hex(), "x"),)
    )
    seen = LinkOutputReplication(east, west, lambda: Link("east", "west"), lambda: scope, lambda: receipts)  # type: ignore[arg-type]
    stage.kept = OutputAwareGroups(stage.east, RULES, seen, clock=lambda: stage.now_s)
    stage.direction = SyncDirection(
        stage.kept, stage.west, stage.west, SyncState(1000.0, 1e9), clock=lambda: stage.now_s
    )
    stage.process(10)
    if not first:
        stage.turn()
    east.hidden.add("invoices")
    stage.now_s += ENDS_REFRESH_INTERVAL_S
    stage.turn()
    stage.turn()
    assert stage.there() == 0
    assert "invoices" in stage.kept.waiting["billing"].words
    east.hidden.clear()
    west.ends = dict.fromkeys(INVOICES, 999)
    stage.turn()
    stage.turn()
    assert stage.there() == 0, "what lies there is somebody else's: the link has no receipt of it"
    receipts.update(dict.fromkeys(INVOICES, 5))
    stage.turn()
    stage.turn()
    assert stage.there() == 10


@pytest.mark.claim("groups", "outputs-moved", "`outputs` that a switch has moved are not waited for")
def test_what_is_at_home_on_the_target_is_not_waited_for() -> None:
    """The link keeps no twin of it any more: the group would wait for good."""
    stage, moved = Stage(), set[str]()
    east: Any = Hiding(stage.logs.source)
    west: Any = Hiding(dict.fromkeys(INVOICES, 0))
    seen = LinkOutputReplication(east, west, lambda: Link("east", "west"), lambda: SCOPE, dict, lambda: moved)
    stage.kept = OutputAwareGroups(stage.east, RULES, seen, clock=lambda: stage.now_s)
    stage.direction = SyncDirection(
        stage.kept, stage.west, stage.west, SyncState(1000.0, 1e9), clock=lambda: stage.now_s
    )
    stage.process(10)
    stage.turn()
    assert "twin of that now" in stage.kept.waiting["billing"].words
    moved.add("invoices")
    stage.now_s += ENDS_REFRESH_INTERVAL_S
    stage.turn()
    assert (stage.kept.waiting, list(stage.kept.unmatched)) == ({}, ["{group}-.*"])
    stage.turn()
    assert stage.there() == 10


def test_an_expression_that_meets_no_topic_is_told() -> None:
    stage = Stage()
    stage.process(10)
    stage.turn()
    assert list(stage.kept.unmatched) == ["{group}-.*"], "invoices are there"
    stage.logs.partitions["x-app-totals"] = 1
    stage.process(10)
    for where in INVOICES:
        stage.cross(where, 99)
    for _ in range(2):
        stage.turn()
    assert stage.kept.unmatched == {}
