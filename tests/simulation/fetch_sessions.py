"""One node's fetch sessions (KIP-227): what was asked stays asked until it is forgotten, and only news is told."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.fetch import FetchPartitionById
from twinshore.replication.task.core.fetching import PlannedFetch

Key = tuple[bytes, int]
NO_ROOM = 0.05


@dataclass(slots=True)
class Session:
    """`told` is what the client last heard of each partition's ends."""

    epoch: int = 0
    wanted: dict[Key, FetchPartitionById] = field(default_factory=dict)
    told: dict[Key, tuple[int, int, int]] = field(default_factory=dict)

    def change(self, order: PlannedFetch) -> None:
        for want in order.partitions:
            self.wanted[want.topic_id, want.partition] = want
        for key in order.forgotten:
            self.wanted.pop(key, None)
            self.told.pop(key, None)


class Turn(NamedTuple):
    """A request's session; or the error that the whole answer has."""

    session_id: int
    session: Session
    error: int = 0


class FetchSessions:
    def __init__(self, node: int, chance: random.Random) -> None:
        self._chance = chance
        self._sessions: dict[int, Session] = {}
        self._next_id = node * 1000

    def forget(self) -> None:
        self._sessions.clear()

    def turn(self, order: PlannedFetch) -> Turn:
        """The session as this request changes it."""
        session = self._sessions.get(order.session_id)
        session_id = order.session_id
        if order.session_epoch == 0:
            self._next_id += 1
            session_id, session = self._next_id, Session()
            if self._chance.random() < NO_ROOM:
                session_id = 0  # No room for another one.
            else:
                self._sessions[session_id] = session
        elif session is None:
            return Turn(0, Session(), Code.fetch_session_id_not_found)
        elif session.epoch + 1 != order.session_epoch:
            return Turn(0, session, Code.invalid_fetch_session_epoch)
        else:
            session.epoch += 1
        session.change(order)
        return Turn(session_id, session)

    def wanted(self, order: PlannedFetch) -> dict[Key, FetchPartitionById]:
        """What this request would ask for, changing nothing."""
        session = self._sessions.get(order.session_id)
        asked = {(one.topic_id, one.partition): one for one in order.partitions}
        return {**(session.wanted if session else {}), **asked}
