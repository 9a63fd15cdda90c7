"""A group is set to other places behind two proxies while its members run: all read on from there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from testkit.cluster import RigCluster
from testkit.errors import mentions, raises
from tests.conftest import ClusterFactory
from tests.scenarios.offsets_stage import (
    COOPERATIVE_IN_JAVA,
    EACH,
    PARTITIONS,
    JavaMember,
    Member,
    Stage,
    filled,
    have_read,
    members,
    read_from,
    staged,
    times_read,
    to_offset,
)
from tests.scenarios.plain_clients import PlainWriter, records_there
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_proxy_transactions import Copier
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.lab.clients import read_group_offsets
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST, KAFKA_OLDEST
from twinshore.proxy.operations import reset_offsets
from twinshore.proxy.operations.reset_offsets import parse_reset_request
from twinshore.state.store import open_store

ALL = range(PARTITIONS)
COOPERATIVE: dict[str, Any] = {"partition.assignment.strategy": "cooperative-sticky"}


@pytest.fixture(scope="module")
def stage(east: RigCluster, west: RigCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("offsets"), east, west) as made:
        yield made


def all_again(some: list[Member], topic: str, to: int, since_s: float) -> None:
    """From the new place on, each once and in order."""
    wanted = {number: list(range(to, EACH)) for number in ALL}
    until_s = time.monotonic() + 60
    while (found := read_from(some, topic, since_s)) != wanted:
        assert time.monotonic() < until_s, (topic, found, [(one.assigned, one.errors) for one in some])
        time.sleep(0.05)


@pytest.mark.parametrize("name", ["eager", pytest.param("cooperative", marks=pytest.mark.long)])
def test_five_members_read_on_from_an_earlier_place(stage: Stage, east: RigCluster, name: str) -> None:
    topic = f"reset-{name}"
    filled(east, topic)
    more = COOPERATIVE if name == "cooperative" else {}
    with members(5, stage.bootstrap, topic, [topic], more) as some:
        have_read(some, PARTITIONS * EACH)
        until(lambda: read_group_offsets(east.cluster, topic, topic, ALL) == [EACH] * PARTITIONS, 20, "they commit")
        until(lambda: all(one.assigned for one in some), 20, "each has joined")
        time.sleep(1)
        joined = [one.assigned for one in some]
        began_s = time.monotonic()
        said = stage.does(to_offset(topic, 10))
        took_s = time.monotonic() - began_s
        assert said[0] == f"group {topic} is held by 2 proxies"
        assert said[2] == f"5 members removed from the group, and {PARTITIONS} committed offsets set"
        all_again(some, topic, 10, began_s)
        time.sleep(2)
        all_again(some, topic, 10, began_s)
        more_joins = [one.assigned - before for one, before in zip(some, joined, strict=True)]
        print(f"told: {said[3]} in {took_s:.1f} s, joined {more_joins}")
        assert [one.errors for one in some] == [[]] * 5
        until(
            lambda: read_group_offsets(east.cluster, topic, topic, ALL) == [EACH] * PARTITIONS, 20, "they commit again"
        )
    with open_store(stage.settings.store.url) as store:
        (told,) = [row for row in store.audit.rows("") if row.group == topic]
        assert (told.kind, told.topic, told.outcome) == ("proxy offsets", topic, "done")
        assert told.after == ", ".join(f"{number}: 10" for number in ALL)


@pytest.mark.long
def test_an_application_that_commits_by_hand_is_told_no_error(stage: Stage, east: RigCluster) -> None:
    """It is at work on what it has read as the reset begins. Of two topics that it reads one is reset."""
    topic, other = "reset-by-hand", "reset-beside"
    for one in (topic, other):
        filled(east, one, each=200)
    with members(3, stage.bootstrap, topic, [topic, other], by_hand=True, works_s=0.3) as some:
        have_read(some, 1_000)
        began_s = time.monotonic()
        stage.does(to_offset(topic, 0, topic))

        def all_again() -> bool:
            found = read_from(some, topic, began_s)
            return all(found[number][-200:] == list(range(200)) for number in ALL)

        until(all_again, 90, "all is read again")
        until(lambda: len(times_read(some, other)) == PARTITIONS * 200, 60, "all of the other one is read")
        time.sleep(1)
        assert [one.errors for one in some] == [[]] * 3
        assert max(times_read(some, other).values()) == 1, "of the topic beside nothing is read again"
        assert read_group_offsets(east.cluster, topic, topic, ALL) == [200] * PARTITIONS


def test_a_group_without_members_and_places_elsewhere(stage: Stage, east: RigCluster, west: RigCluster) -> None:
    """Its place in a topic that only west has is kept there."""
    here, there = "reset-here", "reset-there"
    filled(east, here, 1)
    filled(west, there, 1)
    with members(1, stage.bootstrap, "quiet", [here, there]) as some:
        have_read(some, 2 * EACH)
        until(lambda: read_group_offsets(west.cluster, "quiet", there, [0]) == [EACH], 20, "it commits")
        began_s = time.monotonic()
        assert stage.does(to_offset("quiet", 30))[2] == "1 member removed from the group, and 2 committed offsets set"
        for topic in (here, there):
            until(
                lambda topic=topic: read_from(some, topic, began_s)[0] == list(range(30, EACH)),  # type: ignore[misc]
                60,
                topic,
            )
        assert some[0].errors == []
    held, gathered, done, joined = stage.does(parse_reset_request("quiet", [there], shift=-5))
    assert mentions(held, "group quiet", "2 proxies") and mentions(gathered, "0 of 0 members")
    assert mentions(done, "0 members", "1 committed offset", f"{there}-0: {EACH} -> {EACH - 5}")
    assert mentions(joined, "0 of 0 members")
    assert read_group_offsets(west.cluster, "quiet", there, [0]) == [EACH - 5]
    assert read_group_offsets(east.cluster, "quiet", here, [0]) == [EACH]
    stage.does(parse_reset_request("quiet", [], latest=True))
    assert read_group_offsets(west.cluster, "quiet", there, [0]) == [EACH]
    stage.does(parse_reset_request("quiet", [here], time="2001-01-01T00:00:00Z"))
    assert read_group_offsets(east.cluster, "quiet", here, [0]) == [0]


def test_what_cannot_be_done_is_said_and_changes_nothing(stage: Stage, east: RigCluster) -> None:
    filled(east, "reset-not", 2)
    with members(1, stage.bootstrap, "not", ["reset-not"]) as some:
        have_read(some, 2 * EACH)
        until(lambda: read_group_offsets(east.cluster, "not", "reset-not", [0, 1]) == [EACH] * 2, 20, "it commits")
        for asked, wrong in (
            (to_offset("nobody", 0), "no-such-group"),
            (to_offset("not", 0, "reset-nowhere"), "no-such-topic"),
            (to_offset("not", 0, "reset-not:2"), "no-such-partition"),
            (parse_reset_request("not", [], resume=True), "no-unfinished-reset"),
        ):
            with raises(ConfigError, f"proxy.{wrong}"):
                stage.does(asked)
        with raises(RefusedError, "proxy.offsets-impossible") as refused:
            stage.does(to_offset("not", EACH + 1))
        assert mentions(refused.value.message, "reset-not-0", 51, "reset-not-1")
        shown = stage.shows(parse_reset_request("not", []))
        assert mentions(shown[0], "group not", "east", "1 member")
        assert shown[1:] == ["reset-not-0: 50, of 0 to 50", "reset-not-1: 50, of 0 to 50"]
        assert stage.shows(to_offset("not", 20))[1] == "reset-not-0: 50 -> 20, of 0 to 50: 30 are read again"
        time.sleep(1)
        assert (len(some[0].read), some[0].assigned, some[0].errors) == (2 * EACH, 1, [])


def test_of_two_at_once_one_wins(stage: Stage, east: RigCluster) -> None:
    filled(east, "reset-two")
    with members(2, stage.bootstrap, "two", ["reset-two"]) as some, ThreadPoolExecutor(2) as threads:
        have_read(some, PARTITIONS * EACH)
        until(
            lambda: read_group_offsets(east.cluster, "two", "reset-two", ALL) == [EACH] * PARTITIONS, 20, "they commit"
        )
        began_s = time.monotonic()
        doing = {to: threads.submit(stage.does, to_offset("two", to)) for to in (10, 20)}
        failed = {to: one.exception() for to, one in doing.items()}
        won = [to for to, error in failed.items() if error is None]
        assert len(won) == 1, failed
        assert [getattr(error, "code", "") for error in failed.values() if error] == ["proxy.reset-running"]
        all_again(some, "reset-two", won[0], began_s)


@pytest.mark.parametrize(("taken", "to"), [("undo", EACH), ("resume", 10)])
def test_one_that_was_broken_off_is_finished_or_taken_back(
    stage: Stage, east: RigCluster, monkeypatch: pytest.MonkeyPatch, taken: str, to: int
) -> None:
    group = topic = f"reset-{taken}"
    filled(east, topic)
    with members(2, stage.bootstrap, group, [topic]) as some:
        have_read(some, PARTITIONS * EACH)
        until(lambda: read_group_offsets(east.cluster, group, topic, ALL) == [EACH] * PARTITIONS, 20, "they commit")
        with monkeypatch.context() as patch:
            patch.setattr(reset_offsets.OffsetReset, "gather_late", _killed)
            with pytest.raises(KeyboardInterrupt, match="--resume"):
                stage.does(to_offset(group, 10))
        with pytest.raises(RefusedError, match="did not finish"):
            stage.does(to_offset(group, 20))
        began_s = time.monotonic()
        asked = parse_reset_request(group, [], resume=taken == "resume", undo=taken == "undo")
        assert len(stage.does(asked)) == 4
        if to < EACH:
            all_again(some, topic, to, began_s)
        until(lambda: read_group_offsets(east.cluster, group, topic, ALL) == [EACH] * PARTITIONS, 20, "at the end")
        with pytest.raises(ConfigError, match=f"no reset of group {group} is unfinished"):
            stage.does(asked)
        assert [one.errors for one in some] == [[], []]


@pytest.mark.long
def test_behind_one_that_was_killed_members_go_on_at_its_time(
    stage: Stage, east: RigCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(east, "reset-killed")
    monkeypatch.setattr(reset_offsets, "GROUP_HOLD_S", 20.0)
    with members(2, stage.bootstrap, "killed", ["reset-killed"]) as some:
        have_read(some, PARTITIONS * EACH)
        until(
            lambda: read_group_offsets(east.cluster, "killed", "reset-killed", ALL) == [EACH] * PARTITIONS,
            20,
            "they commit",
        )
        began_s = time.monotonic()
        with monkeypatch.context() as patch:
            patch.setattr(reset_offsets.OffsetReset, "give_up", lambda _: None)
            patch.setattr(reset_offsets.OffsetReset, "gather_late", _killed)
            with pytest.raises(KeyboardInterrupt):
                stage.does(to_offset("killed", 10))
        resume = parse_reset_request("killed", [], resume=True)
        with raises(RefusedError, "proxy.reset-running", by="test", group="killed"):
            stage.does(resume)
        assert read_from(some, "reset-killed", began_s) == {}
        looks = parse_reset_request("killed", [])
        until(lambda: any("did not finish" in line for line in stage.shows(looks)), 40, "its time is over")
        all_again(some, "reset-killed", 10, began_s)
        began_s = time.monotonic()
        stage.does(resume)
        all_again(some, "reset-killed", 10, began_s)
        assert [one.errors for one in some] == [[], []]


def _killed(*_: object) -> int:
    raise KeyboardInterrupt


@pytest.mark.long
@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_NEWEST])
@pytest.mark.claim(
    "proxy", "offsets", "a group of five members is set back while they run: they join once, and read on from there"
)
def test_on_stock_brokers_members_join_once(cluster_factory: ClusterFactory, tmp_path: Path, version: str) -> None:
    """With the time that brokers wait for a group's first members left as it is."""
    lab = cluster_factory(version=version, heap_mb=256, settings={"group.initial.rebalance.delay.ms": "3000"})
    told = []
    with staged(tmp_path, lab) as stage:
        for name, more in (("eager", {}), ("cooperative", COOPERATIVE), ("static", COOPERATIVE)):
            filled(lab, name)
            with members(5, stage.bootstrap, name, [name], more, static=name == "static") as some:
                have_read(some, PARTITIONS * EACH)
                until(
                    lambda name=name: min(read_group_offsets(lab.cluster, name, name, ALL)) == EACH,  # type: ignore[misc]
                    20,
                    "they commit",
                )
                time.sleep(1)
                joined = [one.assigned for one in some]
                began_s = time.monotonic()
                said = stage.does(to_offset(name, 10))
                took_s = time.monotonic() - began_s
                all_again(some, name, 10, began_s)
                again_s = max(at_s for one in some for at_s, _, _ in one.read[-1:]) - began_s
                time.sleep(4)
                all_again(some, name, 10, began_s)
                more_joins = [one.assigned - before for one, before in zip(some, joined, strict=True)]
                assert ([one.errors for one in some], more_joins) == ([[]] * 5, [1] * 5), name
                assert mentions(said[3], "5 of 5 members"), name
                told.append(f"{name} {took_s:.1f} s, all read again behind {again_s:.1f} s")
    print(f"told: on Kafka {version}: {'; '.join(told)}; each joined once, 0 errors")


@pytest.mark.long
def test_a_proxy_that_dies_is_waited_for_until_its_time_is_over(
    east: RigCluster, west: RigCluster, tmp_path: Path
) -> None:
    """Its members go on by the other one; records are written meanwhile."""
    topic = "reset-dies"
    filled(east, topic)
    with staged(tmp_path, east, west) as stage, members(5, stage.bootstrap, topic, [topic]) as some:
        have_read(some, PARTITIONS * EACH)
        writer = PlainWriter(stage.bootstrap, topic, per_s=100)
        try:
            time.sleep(2)
            stage.proxies[1].process.kill()
            began_s = time.monotonic()
            said = stage.does(to_offset(topic, 10))
            assert said[0] == f"group {topic} is held by 1 proxy"
            until(
                lambda: set(read_from(some, topic, began_s)) == set(ALL) and _each_again(some, topic, began_s), 60, "on"
            )
            time.sleep(2)
        finally:
            acked = writer.stop()
        assert writer.failed == []
        until(lambda: len(times_read(some, topic)) == PARTITIONS * EACH + len(acked), 60, "they read all")
        print(f"told: {said}; {time.monotonic() - began_s:.1f} s")


def _each_again(some: list[Member], topic: str, since_s: float) -> bool:
    return all(10 in offsets for offsets in read_from(some, topic, since_s).values())


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "version"),
    [("", KAFKA_NEWEST), (COOPERATIVE_IN_JAVA, KAFKA_NEWEST), (COOPERATIVE_IN_JAVA, KAFKA_OLDEST)],
)
def test_members_in_java_read_on_from_there(
    stage: Stage, east: RigCluster, tmp_path: Path, strategy: str, version: str
) -> None:
    topic = f"reset-java-{'cooperative' if strategy else 'eager'}-{version}"
    filled(east, topic)
    ours = stage.bootstrap, topic, topic, strategy, version
    some = [JavaMember(tmp_path, f"m{number}", *ours) for number in range(2)]
    try:
        until(lambda: sum(len(one.read()) for one in some) == PARTITIONS * EACH, 90, "they read")
        until(lambda: read_group_offsets(east.cluster, topic, topic, ALL) == [EACH] * PARTITIONS, 30, "they commit")
        until(lambda: all(one.lines("partitions_assigned") for one in some), 30, "both have joined")
        time.sleep(5)
        stood = [len(one.read()) for one in some]
        joined = [len(one.lines("partitions_assigned")) for one in some]
        stage.does(to_offset(topic, 10))
        wanted = sorted((number, offset) for number in ALL for offset in range(10, EACH))

        def again() -> list[tuple[int, int]]:
            return sorted(place for one, count in zip(some, stood, strict=True) for place in one.read()[count:])

        until(lambda: len(again()) >= len(wanted), 60, f"they read again: {some[0].said()}")
        time.sleep(5)
        assert again() == wanted
        assert all(one.runs for one in some)
        more = [len(one.lines("partitions_assigned")) - before for one, before in zip(some, joined, strict=True)]
        print(f"told: {topic}: assigned {more} times more")
    finally:
        for one in some:
            one.stop()


@pytest.mark.long
def test_what_copies_exactly_once_aborts_and_copies_on_from_there(stage: Stage, east: RigCluster) -> None:
    source, target = "reset-eos-in", "reset-eos-out"
    for topic in (source, target):
        east.create_topic(topic, partitions=3)
    writer = PlainWriter(stage.bootstrap, source, 200)
    copier = Copier(stage.bootstrap, source, target)
    try:
        until(lambda: copier.copied > 600, 90, "it copies")
        before = copier.copied
        said = stage.does(to_offset(f"copier-{source}", 0))
        until(lambda: copier.copied > before + 1_000, 90, "it copies again")
        acked = writer.stop()
        until(
            lambda: sum(read_group_offsets(east.cluster, f"copier-{source}", source, range(3))) >= len(acked), 90, "all"
        )
    finally:
        writer.stop()
        copier.stop()
    times = Counter((key, number) for _, key, number in records_there(east, target, 3))
    assert set(times) == {(key, number) for _, key, number in records_there(east, source, 3)}
    assert max(times.values()) == 2 and sum(count == 2 for count in times.values()) >= 600
    assert copier.fatal == []
    print(f"told: {said}: {sum(count == 2 for count in times.values())} copied twice; {copier.aborted} aborted")
