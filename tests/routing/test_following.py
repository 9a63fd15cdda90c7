"""What a client must do, and that no client writes once a switch has stopped waiting for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from twinshore.routing.core.home_records import HomeConflict, HomeLog, HomeRecord, HomeState, KeyValue
from twinshore.routing.core.subscribers import (
    POLL_INTERVAL_S,
    SUBSCRIPTION_LEASE_S,
    SWITCH_POLL_INTERVAL_S,
    HomeSubscriber,
    HomeSubscription,
    Pause,
    SubscriberLog,
    WriteTo,
    decide_write,
    poll_interval_s,
)

SWITCH, CLIENT = "5" * 32, "c" * 32
EAST = HomeRecord(topic="orders", home="east", cluster_id="id-e", term=1, step=1)
ANNOUNCED = replace(EAST, step=2, state=HomeState.ANNOUNCED, switch=SWITCH)
HELD = replace(EAST, step=3, state=HomeState.HELD, switch=SWITCH)
WEST = HomeRecord(topic="orders", home="west", cluster_id="id-w", term=2, switch=SWITCH)
CLUSTERS = {"id-e": "here", "id-w": "there"}
SIDES = {"east": "here", "west": "there"}


@pytest.mark.parametrize(
    ("told", "what", "again_s"),
    [
        (None, WriteTo("begin", 0), POLL_INTERVAL_S),
        (EAST, WriteTo("here", 1), POLL_INTERVAL_S),
        (ANNOUNCED, WriteTo("here", 1), SWITCH_POLL_INTERVAL_S),
        (HELD, Pause(SWITCH, "topic orders is held by a switch"), SWITCH_POLL_INTERVAL_S),
        (WEST, WriteTo("there", 2), POLL_INTERVAL_S),
        (
            replace(WEST, cluster_id="id-n"),
            Pause(SWITCH, "topic orders is at home on west, which this client has not met"),
            POLL_INTERVAL_S,
        ),
        (
            HomeConflict(WEST, EAST),
            Pause("", "topic orders: clusters have different homes of one version: west and east"),
            SWITCH_POLL_INTERVAL_S,
        ),
    ],
)
def test_the_lines_order(told: HomeRecord | HomeConflict | None, what: WriteTo | Pause, again_s: float) -> None:
    assert decide_write(told, CLUSTERS, "begin") == what
    assert poll_interval_s([told, EAST]) == again_s


def client(*lines: HomeRecord, at_s: float = 0.0) -> HomeSubscription:
    found = HomeSubscription(CLIENT, "billing", ["orders"], CLUSTERS.values(), "here")
    found.met("here", "id-e")
    found.met("there", "id-w")
    found.said("here", found.says(), at_s, at_s)
    found.read("here", {line.topic: line for line in lines}, at_s + 0.01)
    found.said("there", found.says(), at_s, at_s)
    found.read("there", {}, at_s + 0.01)
    return found


def test_a_client_takes_the_highest_word_that_it_ever_heard() -> None:
    found = client(EAST)
    assert found.order("orders", 0.1) == WriteTo("here", 1)
    found.read("here", {"orders": WEST}, 0.2)
    found.read("here", {"orders": HELD, "bills": replace(HELD, topic="bills")}, 0.3)
    assert found.order("orders", 0.4) == WriteTo("there", 2)
    assert found.says().heard == {}, "bills is none of its topics"


def test_what_one_client_has_heard_holds_for_the_one_that_goes_on_with_other_clusters() -> None:
    """The old home is back from the dead, and answers first: nobody has told it yet."""
    before = client(EAST, WEST, replace(WEST, topic="bills"))
    after = HomeSubscription("2" * 32, "billing", ["orders"], CLUSTERS.values(), "here", told=before.told())
    after.met("here", "id-e")
    after.said("here", after.says(), 1.0, 1.0)
    assert isinstance(after.order("orders", 1.1), Pause), "it was not read itself yet"
    after.read("here", {"orders": EAST}, 1.1)
    assert after.order("orders", 1.2) == Pause(
        WEST.switch, "topic orders is at home on west, which this client has not met"
    )
    after.met("there", "id-w")
    assert isinstance(after.order("orders", 1.2), Pause), "nor was that one"
    after.said("there", after.says(), 1.2, 1.2)
    after.read("there", {}, 1.3)
    assert after.order("orders", 1.4) == WriteTo("there", 2)
    assert set(after.told()) == {"orders"}


NEWER = HomeRecord(topic="orders", home="", cluster_id="", term=0, state=HomeState.HELD, newer=2)
PLAYED = json.loads(Path(__file__).with_name("client_orders.json").read_text(encoding="utf-8"))


@pytest.mark.claim(
    "client", "first-words", "A client that starts waits for the clusters that have not said where topics are at home."
)
@pytest.mark.claim("client", "lease-by-home", "A client's lease to write is renewed by the cluster that it writes to.")
@pytest.mark.parametrize("case", PLAYED["cases"], ids=lambda case: case["name"])
def test_where_a_client_writes_by_what_it_was_answered(case: dict[str, Any]) -> None:
    """The clients in Java and C++ play the same cases."""
    found = HomeSubscription(CLIENT, "billing", ["orders"], case["clusters"], PLAYED["begin"], PLAYED["lease_s"])
    for cluster, asked_s, told in case["asked"]:
        found.met(cluster, cluster)
        found.said(cluster, found.says(), asked_s, asked_s)
        lines = {"orders": NEWER} if told == "newer" else {}
        if isinstance(told, list):
            lines = {"orders": replace(WEST, home=told[0], cluster_id=told[0], term=told[1])}
        found.read(cluster, lines, asked_s + 0.01)
    order = found.order("orders", case["at_s"])
    assert (order.cluster if isinstance(order, WriteTo) else "") == case["writes"], order


def test_what_is_remembered_decides_at_once() -> None:
    known = {"orders": replace(EAST, term=3), "audit": replace(EAST, topic="audit")}
    found = HomeSubscription(CLIENT, "billing", ["orders", "bills", "audit"], ["here", "there"], "here", told=known)
    found.met("here", "id-e")
    found.said("here", found.says(), 0.0, 0.0)
    found.read("here", {"bills": replace(EAST, topic="bills")}, 0.01)
    assert found.order("orders", 0.1) == WriteTo("here", 3)
    assert isinstance(found.order("audit", 0.1), Pause)  # a first word knows of no switch
    assert isinstance(found.order("bills", 0.1), Pause)
    assert isinstance(found.heard("bills", 0.1), Pause), "whoever reads waits as well"
    assert (found.skipped_clusters(4.9), found.skipped_clusters(5.1)) == ([], ["there"])


@pytest.mark.claim(
    "client",
    "first-home",
    "a push decides no home of a topic that a link carries: a mirror's first word, told to its target, counts",
)
def test_a_word_of_the_first_term_beats_a_push_that_names_another_home() -> None:
    found = HomeSubscription(CLIENT, "billing", ["orders", "bills"], ["here", "there"], begin="there")
    for name, cluster_id in zip(CLUSTERS.values(), CLUSTERS, strict=True):
        found.met(name, cluster_id)
        found.said(name, found.says(), 0.0, 0.0)
    found.read("here", {}, 0.01)
    assert isinstance(found.order("orders", 0.1), Pause)  # what the twin's cluster says is waited for
    found.read("there", {"orders": replace(EAST, step=0)}, 0.2)
    assert found.order("orders", 0.3) == WriteTo("here", 1)
    assert found.order("bills", 0.3) == WriteTo("there", 0)  # of this one no cluster says a word


def test_a_name_that_leads_to_another_cluster_leads_no_more_to_the_first_one() -> None:
    found = client(EAST)
    found.met("here", "a stranger's")
    assert isinstance(found.order("orders", 0.1), Pause)
    assert found.cluster_id("here") == "a stranger's"
    found.met("here", "id-e")
    assert isinstance(found.order("orders", 0.1), Pause), "what was said to the other one counts no more"
    assert found.must_announce("here", 0.1)
    found.said("here", found.says(), 0.2, 0.2)
    found.read("here", {}, 0.3)
    assert found.order("orders", 0.4) == WriteTo("here", 1)


def test_a_client_that_reaches_no_cluster_parks_when_its_lease_runs_out() -> None:
    found = client(EAST)
    assert found.until_s("here") == SUBSCRIPTION_LEASE_S
    assert found.order("orders", SUBSCRIPTION_LEASE_S - 0.01) == WriteTo("here", 1)
    assert isinstance(found.order("orders", SUBSCRIPTION_LEASE_S), Pause)
    found.said("here", found.says(), 4.0, 4.1)
    assert isinstance(found.order("orders", SUBSCRIPTION_LEASE_S + 0.01), Pause), "it says so, and does not read"
    found.read("here", {}, 4.2)
    assert found.order("orders", SUBSCRIPTION_LEASE_S) == WriteTo("here", 1)
    assert isinstance(found.order("orders", 9.0), Pause)


def test_after_a_lapse_it_says_so_first_and_reads_then() -> None:
    found = client(EAST)
    found.read("here", {"orders": EAST}, 7.0)
    found.said("here", found.says(), 7.1, 7.2)
    assert isinstance(found.order("orders", 7.3), Pause), "what it read may be older than a switch that saw no follower"
    found.read("here", {"orders": EAST}, 7.15)
    assert isinstance(found.order("orders", 7.3), Pause), "and so it may before it is known to have said so"
    found.read("here", {"orders": EAST}, 7.4)
    assert found.order("orders", 7.5) == WriteTo("here", 1)


def test_news_is_said_at_once_and_nothing_else_but_once_a_second() -> None:
    found = client(EAST)
    assert (found.must_announce("here", 0.5), found.must_announce("here", 1.0)) == (False, True)
    found.read("here", {"orders": HELD}, 0.6)
    assert found.must_announce("here", 0.6)
    found.said("here", found.says(), 0.6, 0.6)
    assert not found.must_announce("here", 0.7)
    assert found.must_announce("there", 0.7), "each cluster is to hear it"
    found.parked("orders")
    said = found.says()
    assert (dict(said.heard), said.parked) == ({"orders": HELD.word}, frozenset({"orders"}))
    assert found.must_announce("here", 0.7)
    found.said("here", said, 0.7, 0.7)
    assert not found.must_announce("here", 0.8)
    found.read("here", {"orders": replace(HELD, step=5)}, 0.8)
    assert found.says().parked == frozenset(), "for another word it must park anew"
    found.read("here", {"orders": WEST}, 0.9)
    assert (found.says().heard, found.poll_s()) == ({}, POLL_INTERVAL_S)


def test_only_who_was_told_to_park_has_parked() -> None:
    found = client(ANNOUNCED)
    found.parked("orders")
    assert (found.says().parked, found.poll_s()) == (frozenset(), SWITCH_POLL_INTERVAL_S)


LEASED = replace(HELD, hold_ms=3_000)


@pytest.mark.claim(
    "client", "hold-ends", "A client ends a hold by itself, without the store, once the hold has run out."
)
def test_a_hold_ends_by_itself_from_when_it_was_heard() -> None:
    found = client(EAST)
    found.read("here", {"orders": LEASED}, 0.5, 0.9)
    found.parked("orders")
    found.said("here", found.says(), 3.0, 3.0)
    found.read("here", {"orders": LEASED}, 3.89)
    assert isinstance(found.order("orders", 3.9), Pause), "it counts from when it heard it, not from when it asked"
    assert isinstance(found.order("orders", 4.0), Pause), "and the end is behind a reading that was asked for after it"
    found.read("here", {"orders": LEASED}, 3.91)
    assert found.order("orders", 4.0) == WriteTo("here", 1)
    assert (found.says().heard, found.says().parked, found.held()) == ({}, frozenset(), frozenset())
    found.read("here", {"orders": LEASED}, 3.5)
    found.read("here", {"orders": LEASED}, 3.95)
    assert found.order("orders", 4.0) == WriteTo("here", 1), "a late answer of another cluster does not hold it again"
    found.read("here", {"orders": replace(LEASED, step=4)}, 4.0, 4.1)
    assert found.order("orders", 4.2) == Pause(SWITCH, "topic orders is held by a switch"), "a new word is a new hold"
    found.said("there", found.says(), 7.4, 7.4)
    found.read("there", {"orders": WEST}, 7.5)
    assert found.order("orders", 7.6) == WriteTo("there", 2)


def test_a_hold_ends_by_what_any_cluster_says_later() -> None:
    found = client(EAST)
    found.read("here", {"orders": LEASED}, 0.5)
    found.said("here", found.says(), 3.6, 3.6)
    found.read("here", {}, 3.6)
    assert found.order("orders", 3.7) == WriteTo("here", 1)


def test_a_hold_without_an_end_is_held_until_another_word_comes() -> None:
    found = client(HELD)
    found.said("here", found.says(), 999.0, 999.0)
    found.read("here", {"orders": HELD}, 999.1)
    found.read("here", {"orders": HELD}, 999.2)
    assert isinstance(found.order("orders", 999.3), Pause)


# -- a switch and its followers, in any order of their steps


@dataclass
class Log:
    """A topic on a cluster: what is appended is there for whoever reads afterwards."""

    lines: list[KeyValue] = field(default_factory=list)


@dataclass
class Stage:
    """Two clusters, one client, one switch. Steps come in any order, with any time between them; what the client asks
    is on its way meanwhile."""

    homes: dict[str, Log] = field(default_factory=lambda: {"east": Log([EAST.line()]), "west": Log()})
    followers: dict[str, Log] = field(default_factory=lambda: {"east": Log(), "west": Log()})
    now_s: float = 0.0
    client: HomeSubscription = field(
        default_factory=lambda: HomeSubscription(CLIENT, "billing", ["orders"], CLUSTERS.values(), "here")
    )
    seen: SubscriberLog = field(default_factory=SubscriberLog)
    read_to: dict[str, int] = field(default_factory=lambda: {"east": 0, "west": 0})
    held: set[str] = field(default_factory=set)
    saying: tuple[str, HomeSubscriber, float] | None = None
    appended: tuple[str, HomeSubscriber, float] | None = None
    reading: tuple[str, dict[str, HomeRecord], float] | None = None
    free_s: float | None = None
    held_line: HomeRecord = HELD
    held_s: float | None = None
    flipped: bool = False
    ended: bool = False

    def ask_to_say(self, side: str) -> None:
        self.saying = side, self.client.says(), self.now_s

    def append(self, _: str) -> None:
        """What was asked reaches the cluster; the answer comes later, or never."""
        if self.saying:
            side, what, _asked_s = self.saying
            self.followers[side].lines.append(what.line())
            self.appended = self.saying

    def hear_said(self, _: str) -> None:
        if self.appended:
            side, what, asked_s = self.appended
            self.client.said(SIDES[side], what, asked_s, self.now_s)
            self.saying = self.appended = None

    def read(self, side: str) -> None:
        """What the cluster answers is on its way for a while."""
        log = HomeLog()
        for line in self.homes[side].lines:
            log.take(*line)
        self.reading = SIDES[side], dict(log.homes), self.now_s

    def hear_read(self, _: str) -> None:
        if self.reading:
            self.client.read(*self.reading, self.now_s)
            self.reading = None

    def obey(self, _: str) -> None:
        found = self.client.order("orders", self.now_s)
        if isinstance(found, Pause):
            self.client.parked("orders")
        elif found.cluster == "there" or self.free_s is None:
            return
        elif self.flipped or not self.is_over():
            raise AssertionError(f"it writes at {self.now_s}, and the switch went on at {self.free_s}")
        else:
            self.ended = True

    def hold(self, side: str) -> None:
        self.held_s = self.now_s if self.held_s is None else self.held_s
        self.homes[side].lines.append(self.held_line.line())
        self.held.add(side)

    def is_over(self) -> bool:
        """By the switch's own clock, from before it said the first word of it."""
        assert self.held_s is not None
        return bool(self.held_line.hold_ms) and self.now_s >= self.held_s + self.held_line.hold_ms / 1000

    def look(self, _: str) -> None:
        """Once both clusters say it, the switch reads both logs of followers, and goes on when nobody is awaited."""
        if self.held < {"east", "west"}:
            return
        for one, log in self.followers.items():
            for line in log.lines[self.read_to[one] :]:
                self.seen.take(*line, self.now_s)
            self.read_to[one] = len(log.lines)
        if not self.seen.awaited({"orders": HELD.word}, self.now_s) and self.free_s is None and not self.is_over():
            self.free_s = self.now_s

    def flip(self, _: str) -> None:
        """Right then or later, and never once the hold may have ended somewhere."""
        if self.free_s is not None and not self.is_over():
            self.flipped = True
            for log in self.homes.values():
                log.lines.append(WEST.line())


STEPS: list[Callable[[Stage, str], None]] = [
    *(Stage.ask_to_say, Stage.append, Stage.hear_said, Stage.read, Stage.hear_read, Stage.obey, Stage.hold),
    *(Stage.look, Stage.obey),
]
TIMES_S = [0.0, 0.0, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.9, 4.9]


def test_no_client_writes_at_the_old_home_once_the_new_one_has_the_topic_though_holds_end_by_themselves() -> None:
    """A hold that has ended makes the flip impossible; one that has not keeps every client from writing."""
    flipped = ended = 0
    for seed in range(2_000):
        chance, stage = Random(seed), Stage(held_line=replace(HELD, hold_ms=6_000))
        stage.client.met("here", "id-e")
        stage.client.met("there", "id-w")
        for _ in range(60):
            chance.choice([*STEPS, Stage.flip])(stage, chance.choice(["east", "west"]))
            stage.now_s += chance.choice(TIMES_S)
        # The process of the switch dies here.
        stage.now_s += 7.0
        for side in ("east", "west"):
            for step in (Stage.ask_to_say, Stage.append, Stage.hear_said, Stage.read, Stage.hear_read, Stage.read):
                step(stage, side)
                stage.now_s += 0.01
            stage.hear_read("")
        stage.now_s += 7.0
        for side in ("east", "west"):
            for step in (Stage.ask_to_say, Stage.append, Stage.hear_said, Stage.read, Stage.hear_read, Stage.obey):
                stage.now_s += 0.01
                step(stage, side)
        assert isinstance(stage.client.order("orders", stage.now_s), WriteTo), "nobody waits for a switch that is dead"
        flipped, ended = flipped + stage.flipped, ended + stage.ended
    assert min(flipped, ended) > 100, f"{flipped} flips and {ended} holds that ended"


def test_no_client_writes_once_a_switch_waits_for_it_no_more() -> None:
    went_on = 0
    for seed in range(6_000):
        chance, stage = Random(seed), Stage()
        for name, side in (("here", "id-e"), ("there", "id-w")):
            stage.client.met(name, side)
        for _ in range(50):
            chance.choice(STEPS)(stage, chance.choice(["east", "west"]))
            stage.now_s += chance.choice(TIMES_S)
        went_on += stage.free_s is not None
    assert went_on > 1_000, "the switches of this test wait for ever"


def test_a_client_that_is_gone_is_waited_for_no_longer_than_its_lease() -> None:
    stage = Stage()
    for step in (Stage.ask_to_say, Stage.append):
        step(stage, "west")
    for side in ("east", "west"):
        stage.hold(side)
    stage.look("")
    assert stage.free_s is None
    stage.now_s = SUBSCRIPTION_LEASE_S
    stage.look("")
    assert stage.free_s == SUBSCRIPTION_LEASE_S
