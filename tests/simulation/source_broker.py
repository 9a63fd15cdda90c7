"""One node as a pump's fetches see it: its logs' records, ends and errors."""

from __future__ import annotations

import random

from tests.simulation.fetch_sessions import FetchSessions, Key, Session
from tests.simulation.source_log import SourceLog
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchPartitionById, FetchResponseById
from twinshore.replication.task.core.fetching import PlannedFetch


class SourceBroker:
    def __init__(self, node: int, logs: dict[Key, SourceLog], chance: random.Random) -> None:
        self.node = node
        self._logs = logs
        self._sessions = FetchSessions(node, chance)
        self.forget_sessions = self._sessions.forget

    def fetch(self, order: PlannedFetch) -> FetchResponseById:
        """test_a_fetch_session_tells_only_news"""
        turn = self._sessions.turn(order)
        if turn.error:
            return FetchResponseById(0, turn.error, 0, [])
        return FetchResponseById(0, 0, turn.session_id, self._answers(turn.session, order.session_epoch == 0))

    def news(self, order: PlannedFetch) -> bool:
        """Whether the broker would answer at once, or let the fetch wait."""
        for key, want in self._sessions.wanted(order).items():
            log = self._logs.get(key)
            if log is None or self._error(log, want) or log.stable > want.position:
                return True
        return False

    def _answers(self, session: Session, everything: bool) -> list[FetchedPartitionById]:
        found: list[FetchedPartitionById] = []
        first = True
        for key, want in session.wanted.items():
            log = self._logs.get(key)
            if log is None:
                found.append(refused(key, Code.unknown_topic_id))
                continue
            error = self._error(log, want)
            if error:
                found.append(refused(key, error))
                continue
            if want.last_fetched_epoch >= 0:
                # test_a_fetch_names_where_the_histories_part
                epoch, end = log.end_of_epoch(want.last_fetched_epoch)
                if epoch < want.last_fetched_epoch or end < want.position:
                    ends = (log.high, log.stable, log.start)
                    found.append(FetchedPartitionById(*key, 0, *ends, (epoch, end), None, [], memoryview(b"")))
                    continue
            records = log.read(want.position, want.max_bytes, whole=first)
            first = first and not records
            ends = (log.high, log.stable, log.start)
            if everything or records or session.told.get(key) != ends:
                aborted = log.aborted_between(want.position, log.stable) if records else []
                found.append(FetchedPartitionById(*key, 0, *ends, None, None, aborted, memoryview(records)))
                session.told[key] = ends
        return found

    def _error(self, log: SourceLog, want: FetchPartitionById) -> int:
        if log.leader != self.node:
            return Code.not_leader_or_follower
        if want.leader_epoch > log.epoch:
            return 75  # unknown leader epoch
        if want.leader_epoch < log.epoch:
            return 74  # fenced leader epoch
        return 0 if log.start <= want.position <= log.end else Code.offset_out_of_range


def refused(key: Key, error: int) -> FetchedPartitionById:
    """test_a_refused_fetch_says_minus_one_for_every_end"""
    return FetchedPartitionById(*key, error, -1, -1, -1, None, None, [], memoryview(b""))
