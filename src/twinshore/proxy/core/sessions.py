"""Which partitions the fetch sessions of one client hold, so that a session ends once one of its topics moves. Pure.

A session is opened with all of its partitions; later requests name only what changes. It is the broker's: here only
its partitions are known, and a session that is not known here is opened anew by the client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from twinshore.proxy.core.near import Looked, Near, Part
from twinshore.proxy.core.seen import Seen
from twinshore.wire.serving.fetch import FetchAnswer, FetchRequest

# Clients have one for each connection. Of more the oldest is forgotten, and its client opens it anew.
SESSIONS_MAX = 4


@dataclass(slots=True)
class _Session:
    """`judged`: as of when all of it was read here; it may have thousands of partitions. `looked`: as of when nothing
    of it was to be read elsewhere. `only`: the topic of all of it, empty where there are several."""

    held: set[Part]
    judged: tuple[Seen, frozenset[tuple[str, str, int]]] | None = None
    looked: Looked = field(default_factory=Looked)
    only: str = ""

    def __post_init__(self) -> None:
        self.look()

    def look(self) -> None:
        """The partitions are others."""
        topics = {topic for topic, _ in self.held}
        self.only = topics.pop() if len(topics) == 1 else ""


class FetchSessions:
    """Those of one client at one broker."""

    def __init__(self) -> None:
        self._known: dict[int, _Session] = {}

    def goes_on(self, asked: FetchRequest, seen: Seen, cluster: str, near: Near) -> bool:
        """Whether the session is known here, and all of it is still read at this cluster. Else it is over."""
        session = self._known.get(asked.session_id)
        if session is None:
            return False
        count = len(session.held)
        session.held.difference_update((str(one.topic), one.partition) for one in asked.dropped)
        named = {(str(one.topic), one.partition) for one in asked.wanted}
        session.held.update(named)
        if asked.dropped or len(session.held) != count:
            session.look()
        judged, now = session.judged, (seen, near.served)
        same = judged is not None and judged[0] is now[0] and judged[1] is now[1]
        parts = named if same else session.held
        away = {topic for topic in {topic for topic, _ in parts} if seen.is_elsewhere(topic, cluster)}
        if away and not all(near.serves(cluster, *part) for part in parts if part[0] in away):
            del self._known[asked.session_id]
            return False
        session.judged = now
        return True

    def parts_of(self, session_id: int) -> tuple[set[Part], Looked]:
        """The partitions that it holds, and as of when none of them was to be read elsewhere."""
        session = self._known[session_id]
        return session.held, session.looked

    def topics_of(self, session_id: int) -> set[str]:
        """Whose partitions it holds."""
        return {topic for topic, _ in self._known[session_id].held}

    def only_topic(self, asked: FetchRequest) -> str:
        """The one that all that is asked for belongs to; empty where there are several."""
        if (session := self._known.get(asked.session_id)) is not None and asked.session_epoch > 0:
            return session.only
        topics = {one.topic for one in asked.wanted}
        return str(topics.pop()) if len(topics) == 1 else ""

    def forget(self, session_id: int) -> None:
        """It is over: its client opens another one."""
        self._known.pop(session_id, None)

    def heard(self, asked: FetchRequest, answer: FetchAnswer) -> None:
        """What the broker made of the request."""
        if answer.error or asked.session_epoch == 0:
            self._known.pop(asked.session_id, None)
        if asked.session_epoch == 0 and answer.session_id and not answer.error:
            self._known[answer.session_id] = _Session({(str(one.topic), one.partition) for one in asked.wanted})
            for oldest in list(islice(self._known, max(0, len(self._known) - SESSIONS_MAX))):
                del self._known[oldest]
