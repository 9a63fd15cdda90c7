"""In which way a topic can be compared, if in any."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof.logs import batched
from tests.proof.small_broker import TOPIC, SmallBroker
from twinshore.config.incident_policy import POLICY_RETRY, POLICY_TOPIC, IncidentKind
from twinshore.config.model import Link, LinkControl
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.record_batch import Record
from twinshore.proof.core.model import CompareMode
from twinshore.proof.core.partition_scan import NEVER_REPLICATED, PAUSED_BEFORE_START
from twinshore.proof.link_scan import LinkScanner, choose_compare_mode
from twinshore.replication.sync.core.lifecycle import COMPACTED_KIND, CompactedTopic, compacted_row
from twinshore.state.core.values import HomeRow, Incident, LinkIdentity, PartitionState, ProgressRecord, TwinRow
from twinshore.state.store import Store, open_store


@pytest.mark.parametrize(
    ("is_mapped", "is_carried", "is_compacted", "way"),
    [
        (False, True, False, CompareMode.EXACT),
        (False, True, True, CompareMode.COMPACTED),
        (True, True, False, CompareMode.OFFSET_MAP),
        (True, True, True, None),
        (False, False, False, CompareMode.CONTENT),
        (False, False, True, None),
    ],
)
def test_cleaned_sides_are_compared_only_where_their_offsets_are_the_same(
    is_mapped: bool, is_carried: bool, is_compacted: bool, way: CompareMode | None
) -> None:
    assert choose_compare_mode(is_mapped=is_mapped, is_carried=is_carried, is_compacted=is_compacted) is way


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_a_compacted_topic_that_others_mirror_is_told_as_not_compared(tmp_path: Path, policy: str) -> None:
    log = [Record(n, n, b"k%d" % n, b"v") for n in range(9)]
    east, west = (SmallBroker(name, batched(random.Random(1), log, 9, first=0)) for name in ("east", "west"))
    east.settings["cleanup.policy"] = policy
    url = f"sqlite:///{tmp_path}/store.db"
    with east.serving() as one, west.serving() as other, open_store(url) as store:
        source, target = KafkaCluster(one), KafkaCluster(other)
        try:
            link = Link("east", "west", (TOPIC,))
            found = LinkScanner(link, store, source, target).look([TOPIC])
            asked_for = LinkScanner(link, store, source, target, CompareMode.CONTENT).look([TOPIC])
        finally:
            source.close()
            target.close()
    assert [look.mode for look in asked_for.looks] == [CompareMode.CONTENT]
    if policy == "delete":
        assert ([look.mode for look in found.looks], found.lacks) == ([CompareMode.CONTENT], ())
    else:
        assert found.looks == ()
        (lack,) = found.lacks
        assert (lack.topic, lack.partition) == (TOPIC, -1)
        assert lack.sentence.startswith("small is compacted")


def carried(store: Store, topic: str, partitions: int = 1) -> None:
    store.twins.save([TwinRow("east->west", topic, number, "aa", "bb", 0, 0, 1) for number in range(partitions)])


@pytest.mark.parametrize("unseen", ["east", "west"])
def test_what_is_carried_and_cannot_be_seen_is_named(tmp_path: Path, unseen: str) -> None:
    log = batched(random.Random(1), [Record(n, n, b"k", b"v") for n in range(9)], 9, first=0)
    brokers = {name: SmallBroker(name, log) for name in ("east", "west")}
    with (
        brokers["east"].serving() as one,
        brokers["west"].serving() as other,
        open_store(f"sqlite:///{tmp_path}/store.db") as store,
    ):
        carried(store, TOPIC)
        source, target = KafkaCluster(one), KafkaCluster(other)
        try:
            surveyor = LinkScanner(Link("east", "west", (".*",)), store, source, target)
            assert [look.partition.topic for look in surveyor.look().looks] == [TOPIC]
            assert surveyor.look().lacks == ()
            brokers[unseen].hidden = True
            hidden = surveyor.look()
            brokers[unseen].hidden, brokers[unseen].leader = False, -1
            leaderless = surveyor.look()
            brokers[unseen].leader = 1
            carried(store, TOPIC, 2)
            short = surveyor.look()
        finally:
            source.close()
            target.close()
    assert (hidden.looks, leaderless.looks) == ((), ())
    (lack,) = hidden.lacks
    assert (lack.topic, lack.partition) == (TOPIC, -1)
    assert f"topic {TOPIC} on {unseen}" in lack.sentence
    (lack,) = leaderless.lacks
    assert (lack.partition, lack.sentence) == (0, f"{TOPIC}-0 has no leader on {unseen}")
    assert [look.partition.partition for look in short.looks] == [0]
    assert {(lack.partition, lack.sentence) for lack in short.lacks} == {
        (1, f"{TOPIC} has no partition 1 on {place}") for place in ("east", "west")
    }


def test_what_the_filters_or_the_archive_have_let_go_is_not_missed(tmp_path: Path) -> None:
    east, west = SmallBroker("east", b""), SmallBroker("west", b"")
    with east.serving() as one, west.serving() as other, open_store(f"sqlite:///{tmp_path}/store.db") as store:
        for topic in ("excluded", "archived"):
            carried(store, topic)
        store.progress.record(
            [
                ProgressRecord(
                    link="east->west",
                    topic="archived",
                    partition=0,
                    from_offset=0,
                    to_offset=1,
                    records=1,
                    bytes=1,
                    batches=1,
                    source_end=1,
                    first_ms=1,
                    last_ms=1,
                )
            ]
        )
        store.progress.set_state("east->west", "archived", 0, PartitionState.ARCHIVED)
        source, target = KafkaCluster(one), KafkaCluster(other)
        try:
            link = Link("east", "west", (".*",), exclude=("excluded", TOPIC))
            found = LinkScanner(link, store, source, target).look()
        finally:
            source.close()
            target.close()
    assert (found.looks, found.lacks) == ((), ())


REFUSED = "topic small holds data that this link did not write"


@pytest.mark.parametrize(
    "case", ["never", "refused", "gone on before", "paused", "at its end", "excluded", "a twin", "at home there"]
)
def test_what_is_admitted_and_does_not_cross_is_named(tmp_path: Path, case: str) -> None:
    logs = [batched(random.Random(1), [Record(n, n, b"k", b"v") for n in range(end)], end, first=0) for end in (9, 5)]
    east, west = (SmallBroker(name, log) for name, log in zip(("east", "west"), logs, strict=True))
    with (
        east.serving() as one,
        west.serving() as other,
        open_store(f"sqlite:///{tmp_path}/store.db") as store,
    ):
        store.links.save_identity(LinkIdentity("east->west", 7, 0, "east", "west"))
        if case in ("gone on before", "at its end"):
            carried(store, TOPIC)
        if case in ("refused", "gone on before"):
            kind = IncidentKind.FOREIGN_WRITE
            store.incidents.add(Incident("east->west", TOPIC, -1, kind, -1, -1, POLICY_TOPIC, REFUSED), now_ms=1)
        if case == "at its end":
            kind, sentence = IncidentKind.OVERSIZE_BATCH, "too large"
            store.incidents.add(Incident("east->west", TOPIC, 0, kind, 5, -1, POLICY_RETRY, sentence), now_ms=1)
        if case == "a twin":  # Of a link that comes here from elsewhere.
            store.links.save_identity(LinkIdentity("north->east", 8, 0, "north", "east"))
            store.twins.save([TwinRow("north->east", TOPIC, 0, "aa", uuid.UUID(int=7).hex, 0, 0, 1)])
        if case == "at home there":
            store.homes.settle([HomeRow("east<>west", TOPIC, "west", 1, 1, "me")])
        source, target = KafkaCluster(one), KafkaCluster(other)
        try:
            link = Link("east", "west", (".*",), exclude=(TOPIC,) if case == "excluded" else ())
            if case == "paused":
                link = replace(link, control=LinkControl(paused_topics=("s.*",)))
            links = (link, Link("north", "east", (".*",)))
            found = LinkScanner(link, store, source, target, links=links).look()
        finally:
            source.close()
            target.close()
    told = [(lack.topic, lack.partition, lack.sentence) for lack in found.lacks]
    row = f"open incident 1, foreign write: {REFUSED}"
    assert (
        told
        == {
            "never": [(TOPIC, -1, NEVER_REPLICATED)],
            "refused": [(TOPIC, -1, f"the mirror refuses it: {row}")],
            "gone on before": [(TOPIC, -1, f"the mirror refuses it: {row}")],
            "paused": [(TOPIC, -1, PAUSED_BEFORE_START)],
            "at its end": [(TOPIC, 0, "the mirror has stopped it: open incident 1, oversize batch: too large")],
            "excluded": [],
            "a twin": [],
            "at home there": [],
        }[case]
    )
    assert len(found.looks) == (case in ("gone on before", "at its end")), "what it holds is compared all the same"


def test_a_topic_that_is_compacted_no_more_is_compared_so_until_its_cleaned_part_is_gone(tmp_path: Path) -> None:
    log = [Record(n, n, b"k%d" % n, b"v") for n in range(20)]
    east, west = (SmallBroker(name, batched(random.Random(1), log, 20, first=0, most=2)) for name in ("east", "west"))
    with (
        east.serving() as one,
        west.serving() as other,
        open_store(f"sqlite:///{tmp_path}/store.db") as store,
    ):
        carried(store, TOPIC)
        source, target = KafkaCluster(one), KafkaCluster(other)

        def way(ours: str, theirs: str, start: int = 0) -> CompareMode:
            east.settings["cleanup.policy"], west.settings["cleanup.policy"] = ours, theirs
            east.start = west.start = start
            found = LinkScanner(Link("east", "west", (TOPIC,)), store, source, target).look()
            store.link_states.remember(found.cleaned)
            assert found.lacks == ()
            (look,) = found.looks
            return look.mode

        try:
            assert (
                way("delete", "delete") is CompareMode.EXACT
                and store.link_states.of("east->west", COMPACTED_KIND) == ()
            )
            assert way("compact", "compact,delete") is CompareMode.COMPACTED
            assert way("delete", "compact,delete", 20) is CompareMode.COMPACTED, "the twin is cleaned still"
            east.log, west.log = east.log[:-2], west.log[:-2]
            ended = east.end
            assert way("delete", "delete") is CompareMode.COMPACTED
            log_of = batched(random.Random(1), log, 20, first=0, most=2)
            east.log, west.log = (SmallBroker("both", log_of).log for _ in range(2))
            assert way("delete", "delete", ended - 1) is CompareMode.COMPACTED
            assert way("delete", "delete", ended) is CompareMode.EXACT, "what the cleaner was at is gone"
            assert way("compact", "compact,delete", ended) is CompareMode.COMPACTED, "and compacted once more"
            assert way("delete", "delete", ended) is CompareMode.COMPACTED
            store.link_states.remember([compacted_row("east->west", TOPIC, CompactedTopic("another"), 1)])
            assert way("delete", "delete") is CompareMode.EXACT, "that was another topic"
        finally:
            source.close()
            target.close()
