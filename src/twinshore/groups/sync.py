"""Offset sync of a link, beside its mirror: a round lists the groups of both clusters once, then runs each direction.

The status of each group is stored for when the source is down. Late or failed rounds do not affect replication.

Also announces the home of proxy clients' groups to clusters that lack the record. A cluster that was down while groups
moved has an older one, which only its clients would read.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from types import MappingProxyType
from typing import Any

from twinshore.config.errors import KafkaError, TwinshoreError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link, OffsetRun
from twinshore.config.settings import Settings
from twinshore.groups.cluster_groups import SyncDirection
from twinshore.groups.core.commit_rules import (
    EMPTY_SCOPE,
    CommitRules,
    GroupSyncStatus,
    OffsetTranslation,
    RunTranslation,
    SyncScope,
    build_scope,
    decide_commit,
    decide_commit_back,
    has_metadata,
)
from twinshore.groups.core.sync_state import (
    REPORT_REFUSAL_AFTER_S,
    GroupState,
    SyncRoundResult,
    SyncState,
    describe_refusals,
)
from twinshore.groups.output_groups import LinkOutputReplication, OutputAwareGroups
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import SHARE_TYPE, ConsumerGroups, GroupListing, ShareGroups, always_allowed
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.offsets import CommittedOffset, GroupOffsets, TopicPartitionTuple
from twinshore.replication import stopped_partitions
from twinshore.replication.core.lag import GROUPS_KIND
from twinshore.replication.core.link_config import effective_link
from twinshore.replication.core.ownership import find_reverse_link, homes_elsewhere, pair_name
from twinshore.replication.links import load_links
from twinshore.routing.core.home_records import HomeLog, HomeRecord
from twinshore.routing.homes_topic import HomesTopic
from twinshore.runtime.endpoints import LONG_TIMEOUT_CONNECTIONS, LinkClients, LinkContext, LinkService, pin_cluster_ids
from twinshore.runtime.logging import LinkLogger, OutageLog
from twinshore.runtime.scheduler import process_scheduler
from twinshore.state.core.values import LinkStateRow, MirrorRequest
from twinshore.state.log import LINKS_SUBJECT
from twinshore.state.store import Store

log = logging.getLogger(__name__)

GROUPS_HOME_KIND = "groups' home"
CHECK_INTERVAL_S = 5.0


def load_home(store: Store) -> HomeRecord | None:
    """Returns the last home record; None if groups have never moved."""
    log = HomeLog()
    for row in store.link_states.of(GROUPS_HOME, GROUPS_HOME_KIND):
        log.take(row.subject.encode(), row.value.encode())
    return log.homes.get(GROUPS_HOME)


def save_home(store: Store, record: HomeRecord) -> None:
    """Saves the record unless a later one is saved, or one that only a newer version can read."""
    before = load_home(store)
    if before is None or (not before.newer and before.word < record.word):
        key, value = record.line()
        row = LinkStateRow(GROUPS_HOME, GROUPS_HOME_KIND, key.decode(), (value or b"").decode(), "", record.since_ms)
        store.link_states.remember([row])


class GroupsHomeAnnouncer:
    """Writes the saved record to these clusters, once for each new record or call of `again`. Use from one thread."""

    def __init__(self, store: Store, clusters: Iterable[KafkaCluster]) -> None:
        self._store = store
        self._homes_topics = {cluster.name: HomesTopic(cluster) for cluster in clusters}
        self._said: dict[str, HomeRecord] = {}
        self._looked_s = float("-inf")

    def again(self) -> None:
        """Call after an outage: the cluster may have an older record."""
        self._said.clear()

    def turn(self, now_s: float) -> None:
        """Checks every few seconds. A silent cluster is retried at the next check."""
        if now_s - self._looked_s < CHECK_INTERVAL_S:
            return
        self._looked_s = now_s
        record = load_home(self._store)
        for name, homes_topic in self._homes_topics.items():
            if record is not None and not record.newer and self._said.get(name) != record:
                try:
                    self._say(name, homes_topic, record)
                except KafkaError as error:
                    if not error.retriable:
                        raise
                    continue
                self._said[name] = record

    def _say(self, name: str, homes_topic: HomesTopic, record: HomeRecord) -> None:
        there = homes_topic.read().get(GROUPS_HOME)
        if there is None or (not there.newer and there.word < record.word):
            homes_topic.make()
            homes_topic.say([record], wall_ms())
            heard = f"{name} hears that groups are at home on {record.home}, in term {record.term}"
            log.info(heard, extra={"cluster": name})


# With more names than this, none is stored.
NAMES_MAX = 20_000
# Groups whose consumers commit metadata, and which get no marks.
GROUPS_WITH_METADATA_KIND = "groups with notes"
SCOPE_INTERVAL_S = 5.0
PROGRESS_TIMEOUT_S = 3.0
SHARE_GROUPS_INTERVAL_S = 5.0
RETENTION_DEFAULT_S = 7 * 86_400.0
# If the target's setting cannot be read: shorter than any usual value.
RETENTION_UNKNOWN_S = 3_600.0
RENEWALS_IN_RETENTION = 4
RENEW_S_MIN = 2.0


def group_names_row(link: str, kind: str, names: Collection[str], now_ms: int) -> LinkStateRow:
    listed = sorted(names) if len(names) <= NAMES_MAX else []
    value = base64.b85encode(zlib.compress(json.dumps(listed).encode())).decode()
    return LinkStateRow(link, kind, "", value, kind, now_ms)


def parse_group_names(rows: Iterable[LinkStateRow]) -> frozenset[str]:
    """Returns the stored names; none if there is no row or an empty value."""
    for row in rows:
        return frozenset(json.loads(zlib.decompress(base64.b85decode(row.value))) if row.value else ())
    return frozenset()


class GroupSync:
    """Syncs the groups of one link. `leaves`: skip topics that a switch has taken from the link. `stable`: as for
    `ConsumerGroups`.
    """

    def __init__(
        self,
        link: Link,
        settings: Settings,
        store: Store,
        *,
        retention_s: float | None = None,
        leaves: bool = False,
        stable: bool = False,
    ) -> None:
        self.link, self._begins, self._store = link, link, store
        self._clients = LinkClients(link, settings, patience_s=5.0, shared=LONG_TIMEOUT_CONNECTIONS)
        self.source, self.target = self._clients.source, self._clients.target
        self.source_groups = ConsumerGroups(self.source, stable=stable)
        self.target_groups = ConsumerGroups(self.target, stable=stable)
        crossing = LinkOutputReplication(
            *(self.source, self.target), lambda: self.link, lambda: self.scope, self._crossed, lambda: self._elsewhere
        )
        self._together = OutputAwareGroups(self.source_groups, link.groups.outputs, crossing)
        self._retention_s = retention_s
        self._held = False
        self.scope = self._scope_back = EMPTY_SCOPE
        self._scoped_at_s = float("-inf")
        self._leaves, self._left, self._switching_version = leaves, frozenset[str](), -1
        self._elsewhere = frozenset[str]()
        self._control_version = -1
        self._admitted: dict[str, bool] = {}
        self._positions: Mapping[TopicPartitionTuple, int] | None = None
        self._carried: dict[TopicPartitionTuple, int] = {}
        self._receipts_until_s = time.monotonic() + PROGRESS_TIMEOUT_S
        self._forward: SyncDirection | None = None
        self._back: SyncDirection | None = None
        self._settings, self._links_revision = settings, -1
        self._shares: SyncDirection | None = None
        self._shared_at_s = float("-inf")
        self._noted = frozenset[str]()

    def close(self) -> None:
        for one in (self.source_groups, self.target_groups, self._clients):
            one.close()

    def run(self, now_s: float, *, may: Callable[[], bool] = always_allowed) -> SyncRoundResult:
        """`may` is called before each commit: another process may own the link by now."""
        begun_s = time.perf_counter()
        done = SyncRoundResult()
        self._positions = None
        self.source_groups.asked.clear()
        self.target_groups.asked.clear()
        self.begin(now_s)
        reading, writing = self.source_groups.listed(), self.target_groups.listed()
        turn = partial(SyncDirection.turn, now_s=now_s, may=may, holds=self._holds)
        if self._forward is not None:
            done.add(turn(self._forward, self.scope, reading, writing, self._by_offsets))
            for name, wait in self._together.waiting.items():
                if now_s - wait.since_s >= REPORT_REFUSAL_AFTER_S:
                    done.told[f"group {name}"] = wait.words
            done.told |= {f"outputs: {expression!r}": said for expression, said in self._together.unmatched.items()}
            self._keep_names(self._forward.sync_state)
        if self._back is not None:
            done.add(turn(self._back, self._scope_back, writing, reading, self._by_offsets), "back: ")
        if now_s - self._shared_at_s >= SHARE_GROUPS_INTERVAL_S and any(map(is_share_group, reading.groups.values())):
            self._shared_at_s = now_s
            try:
                done.add(turn(self._shares_direction(), self.scope, reading, writing, self._shared), "share: ")
            except KafkaError as error:
                done.told["share groups"] = f"do not follow: {error.message}"
        done.asked = self.source_groups.asked + self.target_groups.asked
        done.took_s = time.perf_counter() - begun_s
        return done

    def _shares_direction(self) -> SyncDirection:
        """Syncs share group starts, less often: a start moves only when whole runs of records are done."""
        if self._shares is None:
            reader, writer = ShareGroups(self.source, self.source_groups), ShareGroups(self.target, self.target_groups)
            # Not renewed: setting a start again drops acknowledgements above it.
            sync_state = SyncState(self.link.groups.verify_s, float("inf"))
            # A share group's start has no room for a mark.
            rules = CommitRules(self.link.groups.resets, marks=False)
            self._shares = SyncDirection(reader, writer, self.target, sync_state, decide_commit, rules)
        return self._shares

    def _by_offsets(self, one: GroupListing) -> bool:
        return one.reads_by_offsets and self.admits(one.group)

    def _shared(self, one: GroupListing) -> bool:
        return is_share_group(one) and self.admits(one.group)

    def entries(self) -> dict[str, GroupState]:
        shared = self._shares.sync_state.groups if self._shares else {}
        return {**shared, **self._forward.sync_state.groups} if self._forward else {}

    def waiting(self) -> dict[str, tuple[float, int]]:
        """Returns groups that wait for their output: since when, and their lag in records."""
        together = self._together
        return {name: (one.since_s, together.lag_of(name)) for name, one in together.waiting.items()}

    def refusals(self, now_s: float) -> str:
        ways = [direction for direction in (self._shares, self._back, self._forward) if direction is not None]
        found = {name: one for way in ways for name, one in way.refusals().items()}
        waits = {name: (one.since_s, one.words) for name, one in self._together.waiting.items() if one.in_vain}
        return describe_refusals({**waits, **found}, now_s)

    def begin(self, now_s: float, *, source_gone: bool = False) -> None:
        """Reads the operators' filters, and every few seconds the twins. `source_gone`: assume that source topic ids
        are those of the twins.
        """
        self._held = self._held or pin_cluster_ids(self.link, self._store, self.source, self.target)
        version = self._store.controls.version(self.link.name)
        if version != self._control_version:
            self.link = effective_link(self._begins, self._store.controls.of(self.link.name)).link
            self._admitted.clear()
            self._control_version = version  # only now is it applied
        if self._forward is None:
            rules = self.link.groups
            renew_s = max(RENEW_S_MIN, self._retention() / RENEWALS_IN_RETENTION)
            sync_state = SyncState(rules.verify_s, renew_s)
            self._noted = parse_group_names(self._store.link_states.of(self.link.name, GROUPS_WITH_METADATA_KIND))
            sync_state.noted = set(self._noted)
            sides = self._together, self.target_groups, self.target
            commit_rules = CommitRules(rules.resets, marks=rules.marks)
            self._forward = SyncDirection(*sides, sync_state, decide_commit, commit_rules)
        self._see_ways(self._forward)
        self._hear_switches()
        if now_s - self._scoped_at_s >= SCOPE_INTERVAL_S:
            scope = self._look(source_gone=source_gone)
            # Only now: if a side did not answer, the next round reads again.
            self._scoped_at_s = now_s
            if scope != self.scope:
                self.scope, self._scope_back = scope, scope.reversed()
                self._carried.clear()

    def _see_ways(self, forward: SyncDirection) -> None:
        """Target offsets are synced to the source by the setting, or else if there is a reverse link."""
        revision = self._store.revisions.of(LINKS_SUBJECT)
        if revision == self._links_revision:
            return
        self._links_revision = revision
        returns = self.link.groups.back
        if returns is None:
            returns = find_reverse_link(self.link, load_links(self._settings, self._store).links) is not None
        forward.rules = forward.rules._replace(returns=returns)
        if returns and self._back is None:
            # Groups on the source commit there themselves, so this link does not renew their offsets.
            sync_state = SyncState(self.link.groups.verify_s, float("inf"))
            sides = self.target_groups, self.source_groups, self.source
            self._back = SyncDirection(*sides, sync_state, decide_commit_back, CommitRules(makes=False))
            forward.echo = sync_state.expect
        elif not returns:
            self._back, forward.echo = None, None

    def _hear_switches(self) -> None:
        """Notices a change of homes at once: the new home then writes other records at offsets that groups read on the
        old one.
        """
        pair = pair_name(self.link)
        version = self._store.topics_in_switch.version(pair)
        if version != self._switching_version:
            self._scoped_at_s = float("-inf")
            rows = self._store.topics_in_switch.of(pair) if self._leaves else ()
            self._left = frozenset(row.topic for row in rows if row.request is MirrorRequest.STOP_REPLICATION)
            self._elsewhere = frozenset(homes_elsewhere(self.link, self._store.homes.of(pair)))
            self._switching_version = version

    def _holds(self) -> bool:
        return self._store.topics_in_switch.version(pair_name(self.link)) == self._switching_version

    def rules_for(self, group: str, *sides: Mapping[TopicPartitionTuple, CommittedOffset]) -> CommitRules:
        if self._forward is None:
            return CommitRules()
        rules = self._forward.sync_state.rules_for(group, self._forward.rules)
        return rules._replace(notes=rules.notes or any(has_metadata(place) for one in sides for place in one.values()))

    def _keep_names(self, sync_state: SyncState) -> None:
        """Saves for the next process which groups get no marks."""
        if sync_state.noted != self._noted:
            row = group_names_row(self.link.name, GROUPS_WITH_METADATA_KIND, sync_state.noted, wall_ms())
            self._store.link_states.remember([row])
            self._noted = frozenset(sync_state.noted)

    def admits(self, group: str) -> bool:
        known = self._admitted.get(group)
        if known is None:
            known = self._admitted[group] = self.link.control.admits_group(group)
        return known

    def _look(self, *, source_gone: bool) -> SyncScope:
        rows = [row for row in self._store.twins.of(self.link.name) if row.topic not in self._left]
        topics = sorted({row.topic for row in rows})
        twins = sorted({self.link.twin_of(topic) for topic in topics})
        mapped = {where: self._by_offset_runs(where) for where in self._store.offset_runs.reached(self.link.name)}
        ids = {row.topic: row.source_topic_id for row in rows} if source_gone else _ids(self.source, topics)
        return build_scope(self.link, rows, mapped, ids, _ids(self.target, twins), self._carried_to)

    def _by_offset_runs(self, where: TopicPartitionTuple) -> OffsetTranslation:
        known = self.scope.parts.get(where)
        if known is not None and isinstance(known[1], RunTranslation):
            return known[1]
        return build_run_translation(self._store, self.link.name, where, lambda: self._crossed().get(where, 0))

    def _carried_to(self, where: TopicPartitionTuple, offset: int) -> int:
        """Returns the link's progress on the partition; reads the store again, once a round, if that is below the
        offset. Progress is stored with a delay, so a single read waits.
        """
        if self._carried.get(where, -1) < offset:
            self._carried.update(self._crossed())
        while not self._leaves and self._carried.get(where, 0) < offset and time.monotonic() < self._receipts_until_s:
            time.sleep(PROGRESS_TIMEOUT_S / 20)
            self._positions = None
            self._carried.update(self._crossed())
        return self._carried.get(where, 0)

    def _crossed(self) -> Mapping[TopicPartitionTuple, int]:
        if self._positions is None:
            positions = self._store.progress.positions(self.link.name)
            self._positions = {(position.topic, position.partition): position.to_offset for position in positions}
        return self._positions

    def _retention(self) -> float:
        """The shortest offset retention of the target's brokers counts."""
        if self._retention_s is None:
            found = RETENTION_DEFAULT_S
            try:
                for node in self.target.metadata([], refresh=True).brokers:
                    settings = self.target.admin.broker_settings(node)
                    entry = settings.get("offsets.retention.minutes")
                    found = min(found, float(entry.value) * 60.0 if entry and entry.value else RETENTION_DEFAULT_S)
            except KafkaError as error:
                if error.code not in (Code.cluster_authorization_failed, Code.topic_authorization_failed):
                    raise
                found = RETENTION_UNKNOWN_S
            self._retention_s = found
        return self._retention_s


def build_run_translation(
    store: Store, link: str, where: TopicPartitionTuple, crossed: Callable[[], int]
) -> RunTranslation:
    """`crossed`: how far the source is replicated."""
    topic, partition = where

    def around(offset: int, on_target: bool) -> tuple[OffsetRun | None, OffsetRun | None]:
        return store.offset_runs.around(link, topic, partition, offset, on_target=on_target)

    return RunTranslation(around, crossed)


def is_share_group(one: GroupListing) -> bool:
    return one.kind == SHARE_TYPE


def worst_status(group: GroupState) -> tuple[GroupSyncStatus, int, float]:
    """Returns the group's worst status, records behind, and since when (-1: never)."""
    if group.live:
        return GroupSyncStatus.LIVE, 0, -1.0
    if not group.standing:
        return GroupSyncStatus.SAME, 0, -1.0
    states = [state for state, _, _ in group.standing.values()]
    worst = next(state for state in GroupSyncStatus if state in states)
    behind = sum(max(0, count) for _, count, _ in group.standing.values())
    return worst, behind, min(since_s for _, _, since_s in group.standing.values())


def _ids(cluster: KafkaCluster, topics: list[str]) -> dict[str, str]:
    if not topics:
        return {}
    seen = cluster.metadata(topics, refresh=True).topics
    return {name: topic.topic_id.hex() for name, topic in seen.items() if not topic.error}


# The groups that the last round compared; stored only on change.
COMPARED_KIND = "groups compared"
GROUPS_LISTED_MAX = 500
OFFSETS_SHOWN_MAX = 100
STATUS_MAX_AGE_MS = 15_000
NO_GROUPS_WAITING: Mapping[str, tuple[float, int]] = MappingProxyType({})
# For a group that has waited since the rounds began.
UNKNOWN_GROUP = GroupState(GroupOffsets("", 0, {}, {}, b""))
NEVER_COMPARED = "never compared"
NOT_NAMED = "not named"


def build_status(
    entries: Mapping[str, GroupState],
    done: SyncRoundResult,
    *,
    now_s: float,
    now_ms: int,
    waiting: Mapping[str, tuple[float, int]] = NO_GROUPS_WAITING,
) -> dict[str, Any]:
    """Returns figures of the last round, and each group that differs: status, records behind, since when, own and
    refused offsets. `waiting`: groups held back: since when, and additional lag.
    """
    differ: dict[str, list[Any]] = {}
    counts: Counter[str] = Counter()
    behind = 0
    for name in (*entries, *(waiting.keys() - entries.keys())):
        group = entries.get(name, UNKNOWN_GROUP)
        state, records, since_s = worst_status(group)
        if name in waiting and state is not GroupSyncStatus.LIVE:
            waits_s, later = waiting[name]
            records += later
            if state is GroupSyncStatus.SAME:
                state, since_s = GroupSyncStatus.WAITS, waits_s
        counts[state] += 1
        behind += records
        if state is not GroupSyncStatus.SAME and len(differ) < GROUPS_LISTED_MAX:
            since_ms = now_ms - int((now_s - since_s) * 1000) if since_s >= 0 else None
            own, refused = (
                [list(where) for where, (how, _, _) in group.standing.items() if how is kind][:OFFSETS_SHOWN_MAX]
                for kind in (GroupSyncStatus.OWN, GroupSyncStatus.REFUSED)
            )
            differ[name] = [state, records, since_ms, own, refused]
    return {
        "at_ms": now_ms,
        "groups": done.groups,
        "took_ms": round(done.took_s * 1000, 1),
        "requests": dict(done.asked),
        "states": dict(counts),
        "behind": behind,
        "differ": differ,
        "waits": sorted(waiting)[:GROUPS_LISTED_MAX],
    }


def compared_groups(entries: Mapping[str, GroupState]) -> frozenset[str]:
    """Returns the groups whose offsets are known on both sides; a silent coordinator leaves others out."""
    return frozenset(name for name, group in entries.items() if group.live or not group.check)


def read_status(store: Store, link: str, *, fresh: bool = True) -> dict[str, Any]:
    """Returns an empty status if there is none, or if `fresh` and it is old."""
    for row in store.link_states.of(link, GROUPS_KIND):
        word = json.loads(row.value)
        if not fresh or wall_ms() - word["at_ms"] < STATUS_MAX_AGE_MS:
            return dict(word)
    return {}


def offsets_in(
    word: Mapping[str, Any], group: str
) -> tuple[frozenset[TopicPartitionTuple], frozenset[TopicPartitionTuple]]:
    """Returns the group's own offsets on the target, which the mirror leaves alone, and refused ones."""
    told: list[Any] = [*word.get("differ", {}).get(group, [])[3:5], [], []]
    own, refused = (frozenset((topic, partition) for topic, partition in some) for some in told[:2])
    return own, refused


def last_compared_status(word: Mapping[str, Any], compared: Collection[str], group: str) -> tuple[str, int]:
    """Only a group that was compared, and would have been listed if different, counts as the same."""
    differ = word.get("differ", {})
    if group in differ:
        state, behind, *_ = differ[group]
        return str(state), int(behind)
    if not word or group not in compared:
        return NEVER_COMPARED, 0
    return (GroupSyncStatus.SAME.value if len(differ) < GROUPS_LISTED_MAX else NOT_NAMED), 0


ROUND_KIND, GROUPS_SUBJECT = "round", "groups"
STATUS_INTERVAL_S = 2.0
CLOSE_TIMEOUT_S = 2.0
LOG_AGAIN_AFTER_S = 3600.0
LOGGED_SENTENCES_MAX = 1000
# After a round longer than its interval, rest for this share of the interval.
REST_RATIO = 0.2


class GroupSyncService:
    """`active`: whether this process owns the link. Logs one sentence for each change or failure."""

    def __init__(
        self, link: Link, settings: Settings, store: Store, *, active: Callable[[], bool], outages: OutageLog
    ) -> None:
        self._link, self._settings, self._store = link, settings, store
        self._active, self._outages, self._log = active, outages, LinkLogger(log, link.name)
        self._said: dict[str, tuple[str, float]] = {}
        self._word_at_s = 0.0
        self._compared: frozenset[str] | None = None
        # The incident of an earlier process stays until everything was retried.
        self._began_s = float("inf")
        self._settles_s = link.groups.verify_s + REPORT_REFUSAL_AFTER_S
        self.failed = 0
        self._closed = threading.Event()
        self._sync: GroupSync | None = None
        self._relay: GroupsHomeAnnouncer | None = None
        self._task = process_scheduler.every(
            f"groups {link.name}", self._turn, asks=(link.source, link.target), last=self._let_go
        )

    def close(self) -> None:
        """Does not wait for a round that waits for a cluster: each commit is complete."""
        self._closed.set()
        self._task.close(CLOSE_TIMEOUT_S)

    def _let_go(self) -> None:
        if self._sync is not None:
            self._sync.close()
            self._sync = None

    def _turn(self) -> float:
        every_s, begun_s = self._link.groups.every_s, time.monotonic()
        if self._active():
            if self._sync is None:
                self._sync = GroupSync(self._link, self._settings, self._store, leaves=True)
                clusters = (self._sync.source, self._sync.target)
                self._relay = GroupsHomeAnnouncer(self._store, clusters)
                self._began_s = begun_s
            self._round(self._sync)
        elif self._sync is not None:
            # Another process syncs now; this memory will be outdated when the link returns.
            self._let_go()
            self._compared = None
        took_s = time.monotonic() - begun_s
        return max(every_s - took_s, every_s * REST_RATIO)

    def _may(self) -> bool:
        return self._active() and not self._closed.is_set()

    def _round(self, sync: GroupSync) -> None:
        assert self._relay is not None
        try:
            self._relay.turn(time.monotonic())
            done = sync.run(time.monotonic(), may=self._may)
        except TwinshoreError as error:
            self.failed += 1
            self._relay.again()
            if not isinstance(error, KafkaError) or not error.silent:
                self._say({ROUND_KIND: f"groups do not follow now: {error}"})
            elif not self._closed.is_set():
                self._outages.silent(error.silent, self._link.name, GROUPS_SUBJECT, error.cause)
        except Exception as error:
            # Replication goes on regardless, and so does the next round.
            self.failed += 1
            self._say({ROUND_KIND: f"groups do not follow now: {type(error).__name__}: {error}"})
        else:
            self._outages.answers(self._link.name, GROUPS_SUBJECT)
            self._say(done.told)
            self._leave_word(sync, done)

    def _say(self, told: dict[str, str]) -> None:
        """Logs each sentence once, and again if still true after an hour."""
        now_s = time.monotonic()
        for key, sentence in told.items() if not self._closed.is_set() else ():
            said, at_s = self._said.get(key, ("", 0.0))
            if said != sentence or now_s - at_s > LOG_AGAIN_AFTER_S:
                self._said[key] = (sentence, now_s)
                self._log.warning(f"{sentence if key == ROUND_KIND else f'{key}: {sentence}'}")
        if ROUND_KIND in self._said and ROUND_KIND not in told:
            del self._said[ROUND_KIND]
            self._log.info("groups follow again")
        if len(self._said) > LOGGED_SENTENCES_MAX:
            self._said = dict(list(self._said.items())[-LOGGED_SENTENCES_MAX:])

    def _leave_word(self, sync: GroupSync, done: SyncRoundResult) -> None:
        """Stores the status, so that others know how old a difference is."""
        now_s = time.monotonic()
        if now_s - self._word_at_s < STATUS_INTERVAL_S:
            return
        self._word_at_s = now_s
        now_ms = wall_ms()
        groups = sync.entries()
        value = json.dumps(build_status(groups, done, now_s=now_s, now_ms=now_ms, waiting=sync.waiting()))
        rows = [LinkStateRow(self._link.name, GROUPS_KIND, "", value, GROUPS_KIND, now_ms)]
        names = compared_groups(groups)
        if names != self._compared:
            rows.append(group_names_row(self._link.name, COMPARED_KIND, names, now_ms))
        refused = sync.refusals(now_s)
        try:
            self._store.link_states.remember(rows)
            self._compared = names
            if refused or now_s - self._began_s > self._settles_s:
                stopped_partitions.report_link_incident(
                    self._store, self._link.name, IncidentKind.GROUP_REFUSED, refused
                )
        except TwinshoreError as error:
            self._log.warning(str(error))


def start_group_sync(context: LinkContext) -> LinkService:
    if not context.link.groups.enabled:
        return ExitStack()  # with nothing to close
    return GroupSyncService(
        context.link, context.settings, context.store, active=context.active, outages=context.outages
    )
