"""Levels of topics: what is refused, what stands on clusters afterwards, and what is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import raises
from tests.replication.operations.asked import BACK, LINK, settings_of
from tests.scenarios.mirror_rig import settings_text
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.sections.protection import ProtectionSection
from twinshore.config.sentences import format_time
from twinshore.config.settings import Settings, parse_settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.protection.core.model import AfterFailover, GateState, ProtectionLevel, ReadFrom, WaitCause
from twinshore.protection.core.records import GateRecord, TopicProtection, gate_line
from twinshore.protection.topic import GatesTopic
from twinshore.replication.core.model import FLOWING, STOPPED
from twinshore.replication.operations.protection import (
    PartitionAlone,
    ProtectedTopic,
    ProtectionOverview,
    ProtectionRequest,
    ProtectStep,
    act,
    explain,
    parse_level,
    parse_read,
    plan,
    seed,
    show,
    unmet_sections,
)
from twinshore.state.core.values import LinkStatus, TwinRow
from twinshore.state.store import Store

STRICT = ProtectionRequest(("level-orders",), ProtectionLevel.STRICT)
ASYNC = replace(STRICT, level=ProtectionLevel.ASYNC)


def twin(topic: str) -> TwinRow:
    return TwinRow(LINK, topic, 0, "aa" * 16, "bb" * 16, 0, 0, 1)


@pytest.fixture
def settings(east: LabCluster, west: LabCluster, store: Store, tmp_path: Path) -> Settings:
    for topic in ("level-orders", "level-away"):
        store.twins.save([twin(topic)])
        for lab in (east, west):
            if topic not in create_admin_client(lab.cluster).list_topics(timeout=10).topics:
                lab.create_topic(topic)
    text = settings_text(tmp_path, [east.cluster, west.cluster], {LINK: "level-.*"})
    return parse_settings(text, name="settings", env={})


def levels(settings: Settings) -> dict[str, ProtectionLevel]:
    return {one.topic: one.protection.level for one in show(["level-orders"], settings).topics}


def test_a_level_is_set_on_both_clusters_and_lowered_again(settings: Settings, store: Store) -> None:
    assert show(["level-orders"], settings) == ProtectionOverview((), ())
    with raises(RefusedError, "replication.protection-weak", topic="level-orders", cluster="west"):
        plan(STRICT, settings, store)
    planned = plan(replace(STRICT, even_weak=True), settings, store)
    assert "may lose what it confirmed: it has 1 replicas" in planned.remarks[0]
    (step,) = act(planned, settings, store, by="anna")
    assert step.sentence(done=True) == "topic level-orders is strict, before async"
    assert levels(settings) == {"level-orders": ProtectionLevel.STRICT}
    found = explain("level-orders", settings, store)
    assert "no mirror says that the twin is a copy" in found.partitions[0].sentence()
    assert "no writer said how far partition 0 is confirmed" in found.loss
    assert not found.topic.mixing
    assert found.causes == (f"no mirror of {LINK} has run yet",)
    save_status = LinkStatus(LINK, "mirror", STOPPED, "stopped in good order", 60_000)
    store.links.save_status(save_status)
    assert format_time(60_000) in explain("level-orders", settings, store).causes[0]
    store.links.save_status(replace(save_status, state=FLOWING, updated_ms=wall_ms()))
    assert explain("level-orders", settings, store).causes == ()
    (lowered,) = act(plan(ASYNC, settings, store), settings, store, by="anna")
    assert (lowered.before, lowered.protection.number) == (ProtectionLevel.STRICT, step.protection.number + 1)
    assert levels(settings) == {"level-orders": ProtectionLevel.ASYNC}
    rows = [(row.topic, row.before, row.after, row.actor) for row in store.audit.rows() if row.kind == "protection"]
    assert sorted(rows) == [("level-orders", "async", "strict", "anna"), ("level-orders", "strict", "async", "anna")]
    with raises(ConfigError, "replication.not-protected", topic="level-orders"):
        explain("level-orders", settings, store)


def test_what_is_not_given_stays_and_each_change_is_named() -> None:
    was = TopicProtection(ProtectionLevel.STRICT, 4, 7.0, "west", AfterFailover.WAIT, read=ReadFrom.BOTH)
    sync = replace(STRICT, level=ProtectionLevel.SYNC)
    assert sync.protection(was) == replace(was, level=ProtectionLevel.SYNC)
    now = replace(sync, twin="", alone_after_s=9.0).protection(was)
    assert (now.twin, now.alone_after_s, now.read) == ("", 9.0, ReadFrom.BOTH)
    said = ProtectStep("level-orders", LINK, was, now).sentence(done=True).split("; ")
    assert said[1:] == ["alone_after 9.0, before 7.0", 'twin "", before "west"']
    # Consumers of an async topic are shown all, and of the others no bound is obeyed.
    assert ASYNC.protection(was).read is ReadFrom.HOME
    assert sync.protection(replace(was, loss_at_most_s=30.0)).loss_at_most_s == 0.0


@pytest.mark.usefixtures("short_patience")
def test_of_two_commands_at_once_one_is_told_and_a_loss_is_explained_without_the_home(
    settings: Settings, store: Store
) -> None:
    both = replace(STRICT, topics=("level-away",), even_weak=True)
    stricter, lower = (plan(one, settings, store) for one in (both, replace(both, level=ProtectionLevel.SYNC)))
    list(act(stricter, settings, store, by="anna"))
    with raises(RefusedError, "replication.protection-between", topic="level-away", level=ProtectionLevel.STRICT):
        list(act(lower, settings, store, by="bert"))
    clusters = {**settings.clusters, "east": settings_of("").clusters["east"]}
    found = explain("level-away", replace(settings, values={**settings.values, "clusters": clusters}), store)
    assert "east is away" in found.causes[0]
    assert [(one.home_end, one.twin_end) for one in found.partitions] == [(-1, 0)]
    assert "partition 0" in found.loss
    list(act(plan(replace(both, level=ProtectionLevel.ASYNC), settings, store), settings, store, by="anna"))


def test_it_is_shown_what_consumers_read_and_explained_which_clients_mix(settings: Settings, store: Store) -> None:
    both = replace(STRICT, read=parse_read("both"), even_weak=True)
    (step,) = act(plan(both, settings, store), settings, store, by="anna")
    (shown,) = show(["level-orders"], settings).topics
    assert shown.protection.reads_both
    assert "consumers read what both have" in shown.sentence()
    number, kafka = step.protection.number, KafkaCluster(settings.clusters["west"])
    lately = GateRecord(number, {}, {0: 5}, wall_ms(), mixing=("app", "a\nb"))
    ended = GateRecord(number, {}, mixing=("old",))
    GatesTopic(kafka).say([gate_line("level-orders", "one", lately), gate_line("level-orders", "other", ended)])
    found = explain("level-orders", settings, store)
    assert found.topic.mixing == ("a?b", "app")
    assert any("app" in line for line in found.lines())
    assert "consumers read all that it has there" in found.topic.sentence()
    GatesTopic(kafka).say([gate_line("level-orders", gate, None) for gate in ("one", "other")])
    kafka.close()
    list(act(plan(ASYNC, settings, store), settings, store, by="anna"))


@pytest.mark.usefixtures("short_patience")
def test_what_cannot_be_protected_is_refused_by_name(store: Store) -> None:
    with raises(ConfigError, "config.unknown-choice", option="level", value="both"):
        parse_level("both")
    with raises(ConfigError, "config.unknown-choice", option="read", value="twin"):
        parse_read("twin")
    with raises(ConfigError, "replication.protection-needs-level", option="--read both", level="sync"):
        replace(ASYNC, read=ReadFrom.BOTH)
    with raises(ConfigError, "replication.protection-needs-level", option="--alone-after", level="sync"):
        replace(ASYNC, alone_after_s=7.0)
    with raises(ConfigError, "replication.protection-needs-level", option="--loss-at-most", level="async"):
        replace(STRICT, loss_at_most_s=30.0)
    with raises(ConfigError, "replication.one-of-two", one="--level"):
        parse_level("sync", as_settings=True)
    same, prefixed = settings_of(f'[links."{LINK}"]\n'), settings_of(f'[links."{LINK}"]\nnaming = "prefix"\n')
    with raises(ConfigError, "replication.protection-no-topic", topic="level-orders"):
        plan(STRICT, same, store)
    store.twins.save([twin("level-orders")])
    with raises(RefusedError, "replication.protection-no-twin", topic="level-orders"):
        plan(replace(STRICT, twin="east"), same, store)
    with raises(ConfigError, "config.unknown-cluster", cluster="wets"):
        plan(replace(STRICT, twin="wets"), same, store)
    with raises(ConfigError, "replication.protection-no-topic", topic="level-order"):
        plan(replace(STRICT, topics=("level-order",)), same, store)
    with raises(RefusedError, "replication.protection-not-exact", topic="level-orders", link=LINK):
        plan(STRICT, prefixed, store)
    store.twins.save([replace(twin("level-orders"), link=BACK)])
    both = settings_of(f'[links."{LINK}"]\n[links."{BACK}"]\n')
    with raises(RefusedError, "replication.protection-several-twins", topic="level-orders"):
        plan(STRICT, both, store)


@pytest.mark.usefixtures("short_patience")
def test_a_level_that_a_cluster_does_not_take_is_not_raised_but_lowered(settings: Settings, store: Store) -> None:
    """West is away; a lower level is safe wherever it is read."""
    raising, lowering = (replace(one, topics=("level-away",), even_weak=True) for one in (STRICT, ASYNC))
    planned = plan(raising, settings, store)
    clusters = {**settings.clusters, "west": settings_of("").clusters["west"]}
    gone = replace(settings, values={**settings.values, "clusters": clusters})
    with raises(RefusedError, "replication.protection-away", level=ProtectionLevel.STRICT):
        list(act(planned, gone, store, by="anna"))
    with raises(RefusedError, "replication.protection-away", level=ProtectionLevel.STRICT):
        plan(replace(raising, topics=("level-orders",)), gone, store)
    (step,) = plan(replace(raising, level=ProtectionLevel.SYNC), gone, store).steps
    assert not step.is_higher
    lowered = plan(lowering, gone, store)
    assert "west is away, and is not told" in lowered.remarks[0]
    (shown,) = show(["level-away"], gone).topics  # east has taken the higher level
    assert (shown.away, shown.waits) == ("west", True)
    twin_away = explain("level-away", gone, store)
    assert "west is away" in twin_away.causes[0]
    assert [(one.home_end, one.twin_end, list(one.reasons())) for one in twin_away.partitions] == [(0, -1, [])]
    (done,) = act(lowered, gone, store, by="anna")
    assert done.protection.level is ProtectionLevel.ASYNC


SECTIONS = """
[protection."level-s.*"]
alone_after_s = 7
after_failover = "wait"
read = "both"
[protection.level-bound]
level = "async"
loss_at_most_s = 20
[protection.level-strict]
level = "strict"
"""


def seeded(settings: Settings, store: Store, topics: list[str], labs: tuple[LabCluster, LabCluster]) -> Settings:
    """The settings with `SECTIONS`, and a twin of each topic."""
    for topic in topics:
        store.twins.save([twin(topic)])
        for lab in labs:
            if topic not in create_admin_client(lab.cluster).list_topics(timeout=10).topics:
                lab.create_topic(topic)
    sections = settings_of(f'[links."{LINK}"]\n{SECTIONS}').values["protection"]
    return replace(settings, values={**settings.values, "protection": sections})


def test_topics_get_the_levels_of_the_settings_and_keep_those_of_operators(
    settings: Settings, store: Store, east: LabCluster, west: LabCluster
) -> None:
    topics = ["level-seeded", "level-set", "level-bound", "level-strict"]
    settings = seeded(settings, store, topics, (east, west))
    by_verb = replace(ASYNC, topics=("level-set",))
    list(act(plan(by_verb, settings, store), settings, store, by="anna"))
    waiting = list(unmet_sections(settings))
    assert len(waiting) == 3, "each section has a topic, and one topic has a level"
    assert any("3 are needed" in one and "level-strict" in one for one in waiting)
    (refused,) = seed([*topics, "level-orders"], settings, store)
    assert list(unmet_sections(settings)) == [refused]
    nowhere = replace(settings, values={**settings.values, "protection": {"nowhere": ProtectionSection()}})
    (unmet,) = unmet_sections(nowhere)
    assert "nowhere" in unmet
    assert "topic level-strict" in refused
    assert "3 are needed" in refused
    found = {one.topic: one.protection for one in show(topics, settings).topics}
    assert {topic: (one.level, one.number) for topic, one in found.items()} == {
        "level-seeded": (ProtectionLevel.SYNC, 0),
        "level-set": (ProtectionLevel.ASYNC, 1),
        "level-bound": (ProtectionLevel.ASYNC, 0),
    }
    one = found["level-seeded"]
    assert (one.alone_after_s, one.after_failover, one.read) == (7.0, AfterFailover.WAIT, ReadFrom.BOTH)
    # A verb's level is the settings' again by a verb alone, and then nothing is left to do.
    asked = ProtectionRequest(("level-s.*", "level-bound"), ProtectionLevel.ASYNC, even_weak=True, as_settings=True)
    planned = plan(asked, settings, store)
    assert [(step.topic, step.before) for step in planned.steps] == [
        ("level-set", ProtectionLevel.ASYNC),
        ("level-strict", ProtectionLevel.ASYNC),
    ]
    list(act(planned, settings, store, by="anna"))
    assert plan(asked, settings, store).steps == ()
    with raises(ConfigError, "replication.protection-no-section", topic="level-orders"):
        plan(replace(asked, topics=("level-orders",)), settings, store)
    with raises(ConfigError, "replication.one-of-two", one="topics"):
        plan(replace(STRICT, topics=()), settings, store)
    # What is shown as settings has the levels that are shown.
    text = "\n".join(show(topics, settings).as_settings())
    sections = settings_of(text).values["protection"]
    again = replace(settings, values={**settings.values, "protection": sections})
    assert plan(replace(asked, topics=tuple(topics)), again, store).steps == ()


def test_it_is_shown_what_a_topic_s_writers_say_now(
    settings: Settings, store: Store, east: LabCluster, west: LabCluster
) -> None:
    settings = seeded(settings, store, ["level-said"], (east, west))
    assert list(seed(["level-said"], settings, store)) == []
    kafka = KafkaCluster(west.cluster)
    now_ms = wall_ms()
    records = {
        "one": GateRecord(0, {0: 5}, at_ms=now_ms, state=GateState.PROTECTED, since_ms=7, delay_ms=2.5),
        "two": GateRecord(
            0,
            {0: 5},
            at_ms=now_ms,
            state=GateState.STALLED,
            since_ms=now_ms - 60_000,
            waiting={WaitCause.TWIN_AWAY: 3},
            delay_ms=1.5,
        ),
        "ended": GateRecord(0, {}, at_ms=now_ms - 60_000, state=GateState.ALONE, since_ms=1, delay_ms=99),
        "earlier version": GateRecord(0, {0: 4}, at_ms=now_ms),
    }
    GatesTopic(kafka).say([gate_line("level-said", gate, record) for gate, record in records.items()])
    kafka.close()
    (found,) = show(["level-said"], settings).topics
    assert (found.gates, found.state, found.since_ms) == (4, GateState.STALLED, now_ms - 60_000)
    assert (found.waiting, found.delay_ms) == ({WaitCause.TWIN_AWAY: 3}, 2.5)
    assert "writes are refused since" in found.sentence()


def test_nothing_is_said_of_acknowledgements_that_no_proxy_says() -> None:
    unknown = ProtectedTopic("level-orders", TopicProtection(ProtectionLevel.STRICT, 1), 0, ())
    left = replace(unknown, alone=(PartitionAlone(0, 4035, "ended"),))
    away, bound = replace(left, away="west"), TopicProtection(ProtectionLevel.ASYNC, 1, loss_at_most_s=20.0)
    for one in (unknown, left, away):
        assert "acknowledged by" not in one.sentence()
    assert "4035" in left.sentence()
    assert "west" in away.sentence()
    assert [one.waits for one in (unknown, left, away, replace(away, protection=bound))] == [False, False, True, True]
    # A process that runs knows better, and after a forced switch no twin is waited for.
    assert not replace(away, state=GateState.PROTECTED).waits
    assert not replace(away, has_twin=False).waits


def test_of_an_async_topic_with_a_bound_it_is_explained_how_far_the_twin_is_behind(
    settings: Settings, store: Store, east: LabCluster, west: LabCluster
) -> None:
    settings = seeded(settings, store, ["level-bound"], (east, west))
    bounded = replace(ASYNC, topics=("level-bound",), loss_at_most_s=20.0)
    list(act(plan(bounded, settings, store), settings, store, by="anna"))
    found = explain("level-bound", settings, store)
    assert "over 20 s behind" in found.topic.sentence()
    assert found.loss == "0 offsets that west lacks"
