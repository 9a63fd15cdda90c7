"""One node's fetch sessions (KIP-227): what was asked stays asked until it is forgotten, and only news is told."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.simulation.source_log import SourceLog
from twinshore.kafka.errors import Code
from twinshore.mirror.fetch_book import FetchOrder
from twinshore.wire.fetch import FetchAnswer, FetchedPartition, FetchPartition

Key = tuple[bytes, int]
NO_ROOM = 0.05


@dataclass(slots=True)
class Session:
    epoch: int
    wanted: dict[Key, FetchPartition] = field(default_factory=dict)
    told: dict[Key, tuple[int, int, int]] = field(default_factory=dict)


class SourceBroker:
    def __init__(self, node: int, logs: dict[Key, SourceLog], chance: random.Random) -> None:
        self.node = node
        self._logs = logs
        self._chance = chance
        self._sessions: dict[int, Session] = {}
        self._next_id = node * 1000

    def forget_sessions(self) -> None:
        self._sessions.clear()

    def fetch(self, order: FetchOrder) -> FetchAnswer:
        """test_a_fetch_session_tells_only_news"""
        if order.session_epoch == 0:
            self._next_id += 1
            session_id, session = self._next_id, Session(0)
            if self._chance.random() < NO_ROOM:
                session_id = 0  # No room for another session.
            else:
                self._sessions[session_id] = session
        else:
            session_id = order.session_id
            found = self._sessions.get(session_id)
            if found is None:
                return FetchAnswer(0, Code.FETCH_SESSION_ID_NOT_FOUND, 0, [])
            if found.epoch + 1 != order.session_epoch:
                return FetchAnswer(0, Code.INVALID_FETCH_SESSION_EPOCH, 0, [])
            session = found
            session.epoch += 1
        for want in order.partitions:
            session.wanted[want.topic_id, want.partition] = want
        for key in order.forgotten:
            session.wanted.pop(key, None)
            session.told.pop(key, None)
        return FetchAnswer(0, 0, session_id, self._answers(session, order.session_epoch == 0))

    def news(self, order: FetchOrder) -> bool:
        """Whether the broker would answer at once, or let the fetch wait."""
        session = self._sessions.get(order.session_id)
        wanted = {
            **(session.wanted if session else {}),
            **{(one.topic_id, one.partition): one for one in order.partitions},
        }
        for key, want in wanted.items():
            log = self._logs.get(key)
            if log is None or self._error(log, want) or log.stable > want.position:
                return True
        return False

    def _answers(self, session: Session, everything: bool) -> list[FetchedPartition]:
        found: list[FetchedPartition] = []
        first = True
        for key, want in session.wanted.items():
            log = self._logs.get(key)
            if log is None:
                found.append(refused(key, Code.UNKNOWN_TOPIC_ID))
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
                    found.append(FetchedPartition(*key, 0, *ends, (epoch, end), None, [], memoryview(b"")))
                    continue
            records = log.read(want.position, want.max_bytes, whole=first)
            first = first and not records
            ends = (log.high, log.stable, log.start)
            if everything or records or session.told.get(key) != ends:
                aborted = log.aborted_between(want.position, log.stable) if records else []
                found.append(FetchedPartition(*key, 0, *ends, None, None, aborted, memoryview(records)))
                session.told[key] = ends
        return found

    def _error(self, log: SourceLog, want: FetchPartition) -> int:
        if log.leader != self.node:
            return Code.NOT_LEADER_OR_FOLLOWER
        if want.leader_epoch > log.epoch:
            return 75  # unknown leader epoch
        if want.leader_epoch < log.epoch:
            return 74  # fenced leader epoch
        return 0 if log.start <= want.position <= log.end else Code.OFFSET_OUT_OF_RANGE


def refused(key: Key, error: int) -> FetchedPartition:
    """test_a_refused_fetch_says_minus_one_for_every_end"""
    return FetchedPartition(*key, error, -1, -1, -1, None, None, [], memoryview(b""))
