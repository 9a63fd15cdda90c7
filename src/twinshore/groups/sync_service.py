"""Runs a link's offset sync beside its mirror, and stores the status of each group for when the source is down. Late or
failed rounds do not affect replication.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

from twinshore.config.errors import KafkaError, TwinshoreError
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link
from twinshore.config.settings import Settings
from twinshore.groups.core.commit_rules import GroupSyncStatus
from twinshore.groups.core.sync_state import REPORT_REFUSAL_AFTER_S, GroupState, SyncRoundResult
from twinshore.groups.home import GroupsHomeAnnouncer
from twinshore.groups.sync import GroupSync, group_names_row, worst_status
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.protocol.offsets import GroupOffsets, TopicPartitionTuple
from twinshore.replication.core.lag import GROUPS_KIND
from twinshore.replication.incidents import stopped
from twinshore.runtime.endpoints import LinkContext, LinkService
from twinshore.runtime.logging import LinkLogger, OutageLog
from twinshore.runtime.scheduler import process_scheduler
from twinshore.state.core.values import LinkStateRow
from twinshore.state.store import Store

log = logging.getLogger(__name__)

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


def own_offsets_in(word: Mapping[str, Any], group: str) -> frozenset[TopicPartitionTuple]:
    """Returns the group's own offsets on the target, which the mirror leaves alone."""
    return _places_in(word, group, 3)


def refused_offsets_in(word: Mapping[str, Any], group: str) -> frozenset[TopicPartitionTuple]:
    return _places_in(word, group, 4)


def is_waiting_in(word: Mapping[str, Any], group: str) -> bool:
    return group in word.get("waits", ())


def _places_in(word: Mapping[str, Any], group: str, at: int) -> frozenset[TopicPartitionTuple]:
    told = word.get("differ", {}).get(group, [])
    return frozenset((topic, partition) for topic, partition in (told[at] if len(told) > at else ()))


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
        self.last: SyncRoundResult | None = None
        self.totals: dict[str, int] = {"rounds": 0, "failed": 0, "moved": 0}
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
            self.totals["failed"] += 1
            self._relay.again()
            if not isinstance(error, KafkaError) or not error.silent:
                self._say({ROUND_KIND: f"groups do not follow now: {error}"})
            elif not self._closed.is_set():
                self._outages.silent(error.silent, self._link.name, GROUPS_SUBJECT, error.cause)
        except Exception as error:
            # Replication goes on regardless, and so does the next round.
            self.totals["failed"] += 1
            self._say({ROUND_KIND: f"groups do not follow now: {type(error).__name__}: {error}"})
        else:
            self.last = done
            self._outages.answers(self._link.name, GROUPS_SUBJECT)
            self.totals["rounds"] += 1
            self.totals["moved"] += sum(done.moved.values())
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
                stopped.report_link_incident(self._store, self._link.name, IncidentKind.GROUP_REFUSED, refused)
        except TwinshoreError as error:
            self._log.warning(str(error))


def start_group_sync(context: LinkContext) -> LinkService:
    if not context.link.groups.enabled:
        return ExitStack()  # with nothing to close
    return GroupSyncService(
        context.link, context.settings, context.store, active=context.active, outages=context.outages
    )
