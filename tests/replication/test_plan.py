"""What is carried, how its twin is made, which topics are refused and in which words; tasks and their loads."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from twinshore.config.model import Link, TopicPartition
from twinshore.replication.core.filters import admits
from twinshore.replication.core.model import CarryTopic, Create, Grow, PlanStep, Refuse, Settle
from twinshore.replication.core.planner import (
    MAX_LONG,
    KnownTwin,
    SourceTopic,
    TargetTopic,
    assign_partitions,
    default_task_count,
    plan_moves,
    plan_topic,
    twin_settings,
)

LINK = Link("east", "west")
SOURCE = SourceTopic("orders", "aa", 3, (0, 0))
READY = twin_settings(LINK, SOURCE, 1)
TARGET = TargetTopic("orders", "bb", ((0, 0), (0, 0)), READY)
KNOWN = KnownTwin("aa", "bb")


def plan(
    source: SourceTopic = SOURCE, target: TargetTopic | None = TARGET, known: KnownTwin | None = None, link: Link = LINK
) -> list[PlanStep]:
    return plan_topic(link, source, target, known, target_brokers=1)


@pytest.mark.parametrize(
    ("topics", "exclude", "name", "passes"),
    [
        ((".*",), (), "orders", True),
        ((".*",), (), "__consumer_offsets", False),
        ((".*",), (), "__transaction_state", False),
        (("__.*",), (), "__consumer_offsets", False),
        ((".*",), (), "__mine", True),
        (("order",), (), "orders", False),
        (("orders|bills",), (), "bills", True),
        (("orders.*",), ("orders-test.*",), "orders-test-1", False),
        (("orders.*",), ("orders-test",), "orders-test-1", True),
        ((), (), "orders", False),
    ],
)
def test_filters_match_whole_names_and_exclusions_win(
    topics: tuple[str, ...], exclude: tuple[str, ...], name: str, passes: bool
) -> None:
    assert admits(Link("east", "west", topics, exclude), name) is passes


def test_a_new_topic_gets_a_twin_of_its_shape() -> None:
    (step,) = plan(target=None)
    assert isinstance(step, Create)
    assert (step.topic, step.partitions, step.replication) == ("orders", 2, 1), "at most as many copies as brokers"
    (step,) = plan_topic(replace(LINK, replication_factor=2), SOURCE, None, None, target_brokers=5)
    assert isinstance(step, Create)
    assert step.replication == 2
    (step,) = plan_topic(LINK, SOURCE, None, None, target_brokers=5)
    assert isinstance(step, Create)
    assert step.replication == 3


def test_a_settled_twin_is_carried_without_another_word() -> None:
    assert plan(known=KNOWN) == [CarryTopic("orders", 2, "aa", "bb")]
    assert plan() == [CarryTopic("orders", 2, "aa", "bb")], "an empty topic of the right shape may become a twin"


def test_a_source_that_grew_grows_its_twin() -> None:
    grown = replace(SOURCE, starts=(0, 0, 0))
    assert plan(grown, known=KNOWN) == [Grow("orders", 3, "bb"), CarryTopic("orders", 2, "aa", "bb")]


def test_settings_that_drifted_are_put_right_and_no_others_touched() -> None:
    drifted = replace(TARGET, settings=(*READY[:-1], ("retention.ms", "1000"), ("flush.ms", "7")))
    settle, carry = plan(target=drifted, known=KNOWN)
    assert isinstance(settle, Settle)
    assert dict(settle.settings)["retention.ms"] == "-1"
    assert "flush.ms" not in dict(settle.settings)
    assert isinstance(carry, CarryTopic)


@pytest.mark.parametrize(("limit", "settles"), [("2000000", False), ("1000000", True)])
def test_the_limit_of_a_twin_is_only_ever_raised(limit: str, settles: bool) -> None:
    """Somebody raised it as an incident said."""
    settings = tuple((dict(READY) | {"max.message.bytes": limit}).items())
    first, *_ = plan(target=replace(TARGET, settings=settings), known=KNOWN)
    assert isinstance(first, Settle) is settles


def test_a_twin_keeps_bytes_times_and_records_as_they_are() -> None:
    theirs = (
        ("cleanup.policy", "delete"),
        ("compression.type", "zstd"),
        ("flush.ms", "5"),
        ("max.message.bytes", "9000000"),
        ("message.timestamp.type", "LogAppendTime"),
        ("min.insync.replicas", "3"),
        ("retention.ms", "1000"),
        ("segment.bytes", "1048576"),
    )
    link = replace(LINK, topic_settings=(("segment.bytes", "2097152"), ("index.interval.bytes", "8192")))
    found = dict(twin_settings(link, replace(SOURCE, settings=theirs), 2))
    assert found == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "flush.ms": "5",
        "index.interval.bytes": "8192",
        "max.message.bytes": "9000000",
        "message.timestamp.after.max.ms": MAX_LONG,
        "message.timestamp.before.max.ms": MAX_LONG,
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "2",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": "2097152",
    }


@pytest.mark.parametrize(
    ("source", "target", "known", "kind", "words"),
    [
        (replace(SOURCE, topic_id="cc"), TARGET, KNOWN, "recreated topic", "deleted and created again on the source"),
        (SOURCE, None, KNOWN, "recreated topic", "deleted on the target"),
        (SOURCE, replace(TARGET, topic_id="dd"), KNOWN, "recreated topic", "made again by someone else"),
        (SOURCE, replace(TARGET, spans=((0, 0), (0, 3))), None, "foreign write", "did not write"),
        (SOURCE, replace(TARGET, spans=((0, 0), (3, 9))), None, "foreign write", "did not write"),
        (SOURCE, replace(TARGET, spans=((0, 0),)), None, "partition removed", "1 partitions on the target, 2"),
        (SOURCE, replace(TARGET, spans=((0, 0),) * 3), None, "partition removed", "3 partitions on the target, 2"),
        (SOURCE, replace(TARGET, spans=((0, 0),) * 3), KNOWN, "partition removed", "3 partitions on the target, 2"),
        (SOURCE, replace(TARGET, spans=((0, 0), (5, 5))), None, "position disagreement", "begins at later offsets"),
    ],
)
def test_what_is_refused_is_refused_alone_with_reason_and_remedy(
    source: SourceTopic, target: TargetTopic | None, known: KnownTwin | None, kind: str, words: str
) -> None:
    (step,) = plan(source, target, known)
    assert isinstance(step, Refuse), "a refused topic is not touched: no step beside the refusal"
    assert step.kind == kind
    assert words in step.sentence
    assert "orders" in step.sentence
    assert step.hint


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (replace(SOURCE, topic_id="cc"), TARGET),
        (SOURCE, None),
        (SOURCE, replace(TARGET, topic_id="dd")),
    ],
    ids=["made again", "twin deleted", "twin made again"],
)
def test_the_remedy_names_the_verb_that_works_for_the_twin(source: SourceTopic, target: TargetTopic | None) -> None:
    (exact,), (mapped,) = plan(source, target, KNOWN), plan(source, target, replace(KNOWN, mapped=True))
    assert isinstance(exact, Refuse)
    assert isinstance(mapped, Refuse)
    assert "`twinshore mirror recreate`" in exact.hint
    assert "`twinshore mirror forget`" in mapped.hint
    assert "recreate" not in mapped.hint, "it is refused there"


def test_an_empty_target_that_begins_where_the_source_does_is_accepted() -> None:
    high = 2_147_483_000
    source = replace(SOURCE, starts=(high, high))
    expected = [CarryTopic("orders", 2, "aa", "bb", starts=(high, high))]
    assert plan(source, replace(TARGET, spans=((high, high), (high, high)))) == expected
    assert plan(source, replace(TARGET, spans=((0, 0), (high - 1, high - 1)))) == expected, "what is before is filled"


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_sources_twin_is_compacted_and_can_be_cut(policy: str) -> None:
    (made,) = plan(replace(SOURCE, settings=(("cleanup.policy", policy),)), None)
    assert isinstance(made, Create)
    assert dict(made.settings)["cleanup.policy"] == "compact,delete"
    assert dict(made.settings)["retention.ms"] == dict(made.settings)["retention.bytes"] == "-1"


def test_a_known_twin_goes_on_though_its_sources_log_was_cut() -> None:
    cut = replace(SOURCE, starts=(50, 60))
    assert plan(cut, replace(TARGET, spans=((0, 90), (60, 90))), KNOWN) == [CarryTopic("orders", 2, "aa", "bb")]


def parts(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]


def test_every_partition_has_one_task_and_keeps_it() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        tasks, ours = chance.randint(1, 8), parts(chance.randint(0, 60))
        rate = {named: chance.choice((0.0, 1e3, 1e6, 1e8)) for named in ours if chance.random() < 0.8}
        now = {named: chance.randrange(tasks + 2) for named in ours if chance.random() < 0.4}
        found = assign_partitions(ours, tasks, now=now, rate=rate)
        assert found.keys() == set(ours)
        assert set(found.values()) <= set(range(tasks))
        assert all(found[named] == task for named, task in now.items() if task < tasks), f"seed {seed}"
        assert assign_partitions(ours, tasks, now=found, rate=rate) == found


def test_a_thousand_quiet_partitions_spread_evenly() -> None:
    found = assign_partitions(parts(1000), 4)
    assert [list(found.values()).count(task) for task in range(4)] == [250] * 4


def test_a_link_has_a_task_for_two_cores_and_eight_at_most() -> None:
    assert [default_task_count(cores) for cores in (1, 2, 3, 4, 16, 64)] == [1, 1, 1, 2, 8, 8]


def test_heavy_partitions_do_not_share_a_task_while_another_is_free() -> None:
    rate = dict.fromkeys(parts(4), 1e6)
    assert sorted(assign_partitions(parts(40), 4, rate=rate)[named] for named in parts(4)) == [0, 1, 2, 3]


def loads(placed: dict[TopicPartition, int], rate: dict[TopicPartition, float], tasks: int) -> list[float]:
    found = [0.0] * tasks
    for named, task in placed.items():
        found[task] += rate.get(named, 0.0)
    return found


def test_moves_never_make_the_heaviest_task_heavier() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        tasks, ours = chance.randint(1, 6), parts(chance.randint(1, 40))
        placed = {named: chance.randrange(tasks) for named in ours}
        rate = {named: chance.choice((0.0, 10.0, 1e3, 1e5)) for named in ours}
        before = loads(placed, rate, tasks)
        found = plan_moves(placed, rate, tasks)
        for named, task in found:
            assert placed[named] != task, f"seed {seed}"
            placed[named] = task
        after = loads(placed, rate, tasks)
        assert max(after) <= max(before), f"seed {seed}"
        assert len({named for named, _ in found}) == len(found)
        if max(before) < 1.5 * sum(before) / tasks or not sum(before):
            assert found == []


def test_one_giant_is_left_where_it_is() -> None:
    placed = dict.fromkeys(parts(1), 0)
    assert plan_moves(placed, {parts(1)[0]: 1e9}, 4) == []


def test_a_crowded_task_is_relieved() -> None:
    placed = dict.fromkeys(parts(8), 0)
    rate = dict.fromkeys(parts(8), 1000.0)
    for _ in range(5):
        placed.update(plan_moves(placed, rate, 4))
    assert max(loads(placed, rate, 4)) <= 1.5 * 2000


def test_a_partition_of_a_broadcast_is_on_the_same_task_of_each_link() -> None:
    named = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(8)]
    one = assign_partitions(named, 3, fixed=True)
    other = assign_partitions(named[5:], 3, now={named[7]: 1}, rate={named[6]: 1e9}, fixed=True)
    assert other == {key: task for key, task in one.items() if key in other}, "whatever else the link carries"
    assert set(one.values()) == {0, 1, 2}
