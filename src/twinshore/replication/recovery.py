"""Truncates twins to the source's log start, and guards changes under a link against running mirrors."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager

from twinshore.config.errors import KafkaError, RefusedError, WireError
from twinshore.config.incident_policy import POLICY_NOT_TRUNCATED, IncidentEffect, IncidentSide
from twinshore.config.model import Link, TopicPartition
from twinshore.config.repeat_filter import RepeatFilter
from twinshore.config.sentences import Tell, append_hint
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.record_batch import CONTROL_FLAG
from twinshore.replication.stopped_partitions import kind_of_error
from twinshore.replication.task.lookups import DELETE_RECORDS_DENIED_CODES
from twinshore.runtime.logging import LinkLogger
from twinshore.state.core.lease_watch import LeaseWatch
from twinshore.state.core.values import Incident, IncidentRow, LeaseRow
from twinshore.state.store import Store

log = logging.getLogger(__name__)


def select_due_cuts(
    before: Mapping[TopicPartition, int],
    anchors: Mapping[TopicPartition, int],
    done: Mapping[TopicPartition, int],
    *,
    never: bool,
) -> dict[TopicPartition, int]:
    """Returns the offsets to which known twins are cut. A twin holds only filler below the anchor; with `never`, only
    that part is cut.
    """
    known = {partition: at for partition, at in before.items() if partition in anchors}
    if not never:
        return known
    filled = {partition: min(at, anchors[partition]) for partition, at in known.items()}
    return {partition: at for partition, at in filled.items() if at > done.get(partition, 0)}


class LogStartSync:
    """`doubt` gets topics whose twins may have been replaced. `never`: whether no record may be cut off now. A refusal
    is an incident until the cut succeeds.
    """

    def __init__(
        self,
        link: Link,
        target: KafkaCluster,
        store: Store,
        *,
        never: Callable[[], bool],
        doubt: Callable[[Iterable[str]], object],
    ) -> None:
        self._link, self._target, self._store, self._doubt = link, target, store, doubt
        self._log = LinkLogger(log, link.name)
        self._never_now, self._never = never, False
        self._refused: dict[str, RepeatFilter] = {}

    def cut(self, before: Mapping[TopicPartition, int], done: MutableMapping[TopicPartition, int]) -> None:
        """Cuts twins to these offsets, and adds them to `done`. One failing topic holds up no other."""
        self._never = self._never_now()
        rows = self._store.twins.of(self._link.name)
        ids = {row.topic: row.target_topic_id for row in rows}
        anchors = {TopicPartition(row.topic, row.partition): row.base_offset for row in rows}
        wanted = select_due_cuts(before, anchors, done, never=self._never)
        opened = self._open_rows()
        for topic in opened.keys() - {partition.topic for partition in wanted}:
            if self._never or topic not in ids:
                self._close(opened[topic])
        count = 0
        for topic in sorted({partition.topic for partition in wanted}):
            cuts = {partition: at for partition, at in wanted.items() if partition.topic == topic}
            count += self._cut(topic, ids[topic], cuts, done, opened.get(topic))
        if count:
            self._log.info(f"truncated {count} twins to their sources' log starts")

    def _cut(
        self,
        topic: str,
        topic_id: str,
        cuts: Mapping[TopicPartition, int],
        done: MutableMapping[TopicPartition, int],
        row: IncidentRow | None,
    ) -> int:
        twin = self._link.twin_of(topic)
        repeat_filter = self._refused.setdefault(topic, RepeatFilter(self._log))
        sources = {TopicPartition(twin, partition.partition): partition for partition in cuts}
        ends = {there: cuts[partition] for there, partition in sources.items()}
        try:
            cut, failed = self._target.delete_records_of_each(ends, {twin: bytes.fromhex(topic_id)})
        except KafkaError as error:
            cut, failed = {}, dict.fromkeys(ends, error)
        done.update((sources[there], ends[there]) for there in cut)
        refused = all(error.code in DELETE_RECORDS_DENIED_CODES for error in failed.values())
        if failed and refused and self._never and not self._show_filler({there: ends[there] for there in failed}):
            done.update(cuts)
            failed = {}
        if failed:
            why = next(iter(failed.values()))
            repeat_filter.say(f"the log of twin {twin} was not truncated to its source's start: {why.message}")
            # If the target refused, it has the twin: no sign that the twin was replaced.
            if refused:
                self._report(topic, twin, max(cuts.values()), why)
            else:
                self._doubt([topic])
        else:
            repeat_filter.well(f"the log of twin {twin} is truncated to its source's start again")
            if row:
                self._close(row)
        return len(cut)

    def _show_filler(self, below: Mapping[TopicPartition, int]) -> bool:
        """Whether readers see a record below these offsets, where twins hold filler or markers."""
        try:
            starts = self._target.list_offsets(below, OffsetKind.EARLIEST)
            first = [self._target.read_batch(there, at) for there, at in starts.items() if at < below[there]]
        except (KafkaError, WireError):
            return True
        return any(found and not found[1].attributes & CONTROL_FLAG for found in first)

    def _open_rows(self) -> dict[str, IncidentRow]:
        rows = self._store.incidents.rows(self._link.name, open_only=True)
        return {row.incident.topic: row for row in rows if row.incident.policy.effect is IncidentEffect.NOT_TRUNCATED}

    def _report(self, topic: str, twin: str, at: int, error: KafkaError) -> None:
        what = f"the log of twin {twin} cannot be cut to its source's start, and may show more than the source"
        sentence = append_hint(f"{what}: {error.message}", error.hint)
        place, rest = (self._link.name, topic, -1), (POLICY_NOT_TRUNCATED, sentence, IncidentSide.TARGET)
        self._store.incidents.add(Incident(*place, kind_of_error(error), 0, at, *rest), now_ms=wall_ms())

    def _close(self, row: IncidentRow) -> None:
        self._store.incidents.close(row.id, now_ms=wall_ms())


LEASE_POLL_INTERVAL_S = 0.1
LEASE_MS = 60_000  # far more than a change of the store takes
GRACE_S = 5.0  # a dead mirror's requests may still be in flight for so long; successors wait as well


def refuse_while_mirror_runs(store: Store, link: str, lease_s: float, tell: Tell) -> LeaseRow | None:
    """Returns the link's lease once released, or seen here to expire; no two hosts' clocks are compared. RefusedError
    when a mirror renews it. `tell` gets why this takes long.
    """
    watch = LeaseWatch(lease_s, GRACE_S)
    first = row = store.leases.read(f"link {link}")
    if row is None or row.released:
        return row
    tell(f"{link}: {row.owner} has not given its lease up; looking whether it is alive")
    while not watch.observe(row, time.monotonic()):
        if row != first:
            raise _carried(link, row)
        time.sleep(LEASE_POLL_INTERVAL_S)
        row = store.leases.read(f"link {link}")
    return row


@contextmanager
def hold_mirror_lease(store: Store, link: str, row: LeaseRow | None, by: str) -> Iterator[None]:
    """Holds the link's lease, so that no mirror begins. RefusedError when taken or renewed since `row`."""
    owner = f"{by}, process {os.getpid()}, {secrets.token_hex(4)}"
    held = store.leases.take(f"link {link}", owner, LEASE_MS, row=row)
    if held is None:
        raise _carried(link, store.leases.read(f"link {link}"))
    try:
        yield
    finally:
        store.leases.release(held)


def _carried(link: str, row: LeaseRow | None) -> RefusedError:
    return RefusedError("replication.link-running", link=link, owner=row.owner if row else "another process")
