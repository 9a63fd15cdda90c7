"""Recovers the state of a link from the target cluster while the store is down: producer, twins, and homes.

A temporary store is filled with this state, so that the same steps run on it. Missing is what only the dead store has:
progress, operator overrides, and rights held back from the twins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from twinshore.config.errors import RefusedError
from twinshore.config.frozen import TWINS_TOPIC
from twinshore.config.model import Link, TopicPartition
from twinshore.config.sentences import join_names
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.record_batch import CONTROL_FLAG
from twinshore.kafka.state_topic import StateTopic
from twinshore.replication.core.claim_records import LinkClaimState, LinkClaimStates, LinkWriter, iter_anchors
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.routing.core.home_records import HomeRecord
from twinshore.state.core.values import HomeChange, HomeRow, LinkIdentity, TwinRow
from twinshore.state.store import Store


@dataclass(frozen=True, slots=True)
class RecoveredLink:
    """The state of a link by the new home. `mapped`: topics whose twins have mapped offsets."""

    link: Link
    identity: LinkIdentity
    twins: tuple[TwinRow, ...]
    homes: tuple[HomeRow, ...]
    mapped: tuple[str, ...]

    def topics(self) -> set[str]:
        return {row.topic for row in self.twins}

    def elsewhere(self) -> dict[str, str]:
        return {row.topic: row.home for row in self.homes if row.home != self.link.source}


def recover_link(link: Link, target: KafkaCluster, records: Mapping[str, HomeRecord]) -> RecoveredLink | None:
    """Returns None if no state record shows that the link writes there. `records`: the home records of that cluster."""
    state = _read_claim(link, target)
    if state is None or state.writer is None:
        return None
    return rebuild_link_state(link, state, state.writer, records)


def rebuild_link_state(
    link: Link, state: LinkClaimState, writer: LinkWriter, records: Mapping[str, HomeRecord]
) -> RecoveredLink:
    ids = {state.source_id: link.source, writer.target_cluster_id: link.target}
    clusters = (state.source_id, writer.target_cluster_id)
    identity = LinkIdentity(link.name, writer.producer_id, writer.producer_epoch, *clusters)
    rows = [
        TwinRow(
            *(link.name, topic, partition, anchors.source_topic_id, anchors.target_topic_id),
            *(run.offset, run.sequence, 0, run.inherited, run.epoch),
        )
        for (topic, _), anchors in sorted(state.twins.items())
        for partition, run in iter_anchors([anchors])
    ]
    topics = {row.topic for row in rows}
    homes = [
        HomeRow(
            pair_name(link), topic, ids.get(record.cluster_id, record.home), record.term, record.since_ms, record.set_by
        )
        for topic, record in sorted(records.items())
        # A mirror that runs forgets a twin that has become a home. An unknown home is none of a store's.
        if not record.newer and (topic in topics or ids.get(record.cluster_id) == link.target)
    ]
    mapped = sorted({topic for (topic, _), anchors in state.twins.items() if anchors.mapped})
    return RecoveredLink(link, identity, tuple(rows), tuple(homes), tuple(mapped))


def store_recovered_links(store: Store, found: Iterable[RecoveredLink], also: Collection[str] = ()) -> None:
    """Of topics whose home is elsewhere, only the twins in `also` are saved."""
    for recovered_link in found:
        gone = (recovered_link.elsewhere().keys() | set(recovered_link.mapped)) - set(also)
        store.links.save_identity(recovered_link.identity)
        # Before the twins, which `flip` removes.
        store.topics_in_switch.change_homes([_home_change(row) for row in recovered_link.homes])
        store.twins.save([row for row in recovered_link.twins if row.topic not in gone])


def _home_change(row: HomeRow) -> HomeChange:
    return HomeChange(
        pair=row.pair,
        topic=row.topic,
        home=row.home,
        term=row.term,
        link="",
        back="",
        source_topic_id="",
        target_topic_id="",
        points=(),
        since_ms=row.since_ms,
        set_by=row.set_by,
    )


@dataclass(frozen=True, slots=True)
class LastWriters:
    """`strange`: partitions that end with records of an unknown producer. `ours`: a broker knows the link's recorded
    producer as a writer of any of them.
    """

    strange: tuple[str, ...] = ()
    ours: bool = True

    @property
    def refused(self) -> bool:
        """Returns whether nothing shows that the state records match the link's current producer."""
        return bool(self.strange) and not self.ours


def find_last_writers(target: KafkaCluster, found: RecoveredLink, topics: Collection[str]) -> LastWriters:
    """Checks the last writers of these topics: if the state records are outdated, a fence shuts out the wrong producer.
    Reads only the ends where a broker remembers another producer.
    """
    pid = found.identity.producer_id
    own = {pid, marker_producer_id(pid)}
    below = {TopicPartition(row.topic, row.partition): row.inherited_end for row in found.twins if row.topic in topics}
    writers = target.describe_producers(below)
    others = [
        partition
        for partition, producers in writers.items()
        if any(producer.producer_id not in own and producer.last_sequence >= 0 for producer in producers)
    ]
    ends = target.list_offsets(others, OffsetKind.HIGH_WATERMARK) if others else {}
    strange = []
    for partition in others:
        last = target.read_tail_batch(partition, ends[partition] - 1) if ends[partition] > below[partition] else None
        if last is not None and not last.attributes & CONTROL_FLAG and last.producer_id not in own:
            strange.append(str(partition))
    known = any(producer.producer_id in own for producers in writers.values() for producer in producers)
    return LastWriters(tuple(sorted(strange)), known)


def _read_claim(link: Link, target: KafkaCluster) -> LinkClaimState | None:
    with target.errand():
        notebook, found = StateTopic(target, TWINS_TOPIC), LinkClaimStates(link.name)
        if not notebook.exists():
            return None
        for notes, _ in notebook.pages(0):
            for note in notes:
                found.take(note.key, note.value)
        if versions := [state.newer_writer for state in found.by_source.values() if state.newer_writer]:
            raise RefusedError("replication.newer-claim", link=link.name, cluster=target.name, version=versions[0])
        several = found.written(target.cluster_id())
        if len(several) > 1:
            several = _with_current_twins(link, several, target)
    if len(several) > 1:
        sources = join_names([state.source_id for state in several], len(several))
        ends = {"sources": sources, "source": link.source}
        raise RefusedError("switch.several-claims", cluster=target.name, link=link.name, **ends)
    return several[0] if several else None


def _with_current_twins(link: Link, several: list[LinkClaimState], target: KafkaCluster) -> list[LinkClaimState]:
    names = sorted({link.twin_of(topic) for state in several for topic, _ in state.twins})
    topics = target.metadata(names, refresh=True).topics
    ids = {topic.topic_id.hex() for topic in topics.values() if not topic.error}
    return [state for state in several if any(anchors.target_topic_id in ids for anchors in state.twins.values())]
