"""Tells gates which epoch of the source each protected partition of a link has reached: in `twinshore.protection` on
the target. Progress in the store says it; a line is written when it changes, so seldom but after elections.
"""

from __future__ import annotations

import logging
from typing import Final

from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.kafka.state_topic import KeyValue
from twinshore.protection.core.model import ProtectionLevel, ReachedEpoch
from twinshore.protection.core.records import reached_line
from twinshore.protection.topic import ProtectionTopic
from twinshore.runtime.endpoints import (
    SHORT_TIMEOUT_CONNECTIONS,
    LinkClients,
    LinkContext,
    LinkService,
    pin_cluster_ids,
)
from twinshore.runtime.logging import LinkLogger
from twinshore.runtime.scheduler import process_scheduler
from twinshore.state.core.values import PartitionState

log = logging.getLogger(__name__)

ROUND_INTERVAL_S: Final = 0.5
IDLE_INTERVAL_S: Final = 5.0
CALL_TIMEOUT_S: Final = 3.0


class ReachedEpochs:
    """One link's lines. Errors are logged once; the next round tries again, and gates confirm nothing until then."""

    def __init__(self, context: LinkContext) -> None:
        self._link, self._store, self._active = context.link, context.store, context.active
        self._clients = LinkClients(
            context.link,
            context.settings,
            patience_s=CALL_TIMEOUT_S,
            call_s=CALL_TIMEOUT_S,
            shared=SHORT_TIMEOUT_CONNECTIONS,
        )
        self._topic = ProtectionTopic(self._clients.target)
        self._outage = RepeatFilter(LinkLogger(log, context.link.name))
        ends = context.link.source, context.link.target
        self._task = process_scheduler.every(f"reached {context.link.name}", self._turn, asks=ends)

    def close(self) -> None:
        self._task.close()
        self._clients.close()

    def _turn(self) -> float:
        if not self._active():
            return IDLE_INTERVAL_S
        try:
            pinned = pin_cluster_ids(self._link, self._store, self._clients.source, self._clients.target)
            told = pinned and self._tell()
        except Exception as error:  # gates wait
            self._outage.say(f"protected writes are not confirmed: {describe_error(error)}")
            return IDLE_INTERVAL_S
        self._outage.well("protected writes are confirmed again")
        return ROUND_INTERVAL_S if told else IDLE_INTERVAL_S

    def _tell(self) -> bool:
        """Writes what has changed. Returns whether the link has protected topics."""
        known = self._topic.read()
        topics = {name for name, level in known.levels.items() if level.level is not ProtectionLevel.ASYNC}
        if not topics:
            return False
        cluster_id = self._clients.source.cluster_id()
        positions = {(row.topic, row.partition): row for row in self._store.progress.positions(self._link.name)}
        lines: list[KeyValue] = []
        for twin in self._store.twins.of(self._link.name):
            if twin.topic not in topics:
                continue
            row = positions.get((twin.topic, twin.partition))
            is_stopped = row is not None and row.state is not PartitionState.FLOWING
            epoch = row.source_epoch if row else -1
            reached = ReachedEpoch(twin.source_topic_id, twin.target_topic_id, epoch, is_stopped)
            if known.reached.get((cluster_id, twin.topic, twin.partition)) != reached:
                lines.append(reached_line(cluster_id, twin.topic, twin.partition, reached))
        if lines:
            self._topic.say(lines)
        return True


def start_reached_epochs(context: LinkContext) -> LinkService:
    return ReachedEpochs(context)
