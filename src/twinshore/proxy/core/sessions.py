"""Which partitions the fetch sessions of one client hold, so that a session ends once one of its topics moves. Pure.

A session is opened with all of its partitions; later requests name only what changes. It is the broker's: here only
its partitions are known, and a session that is not known here is opened anew by the client.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from twinshore.proxy.core.seen import Seen
from twinshore.wire.serving.fetch import FetchAnswer, FetchRequest

# Clients have one for each connection. Of more the oldest is forgotten, and its client opens it anew.
SESSIONS_MAX = 4


@dataclass(slots=True)
class _Session:
    """`judged`: as of when all its topics were at home here; it may have thousands of partitions."""

    held: set[tuple[str, int]]
    judged: Seen | None = None


class FetchSessions:
    """Those of one client at one broker."""

    def __init__(self) -> None:
        self._known: dict[int, _Session] = {}

    def goes_on(self, asked: FetchRequest, seen: Seen, cluster: str) -> bool:
        """Whether the session is known here, and all its topics are still at this cluster. Else it is over."""
        session = self._known.get(asked.session_id)
        if session is None:
            return False
        session.held.difference_update((str(one.topic), one.partition) for one in asked.dropped)
        session.held.update((str(one.topic), one.partition) for one in asked.wanted)
        topics = {str(one.topic) for one in asked.wanted}
        if seen is not session.judged:
            topics |= {topic for topic, _ in session.held}
        if any(seen.is_elsewhere(topic, cluster) for topic in topics):
            del self._known[asked.session_id]
            return False
        session.judged = seen
        return True

    def heard(self, asked: FetchRequest, answer: FetchAnswer) -> None:
        """What the broker made of the request."""
        if answer.error or asked.session_epoch == 0:
            self._known.pop(asked.session_id, None)
        if asked.session_epoch == 0 and answer.session_id and not answer.error:
            self._known[answer.session_id] = _Session({(str(one.topic), one.partition) for one in asked.wanted})
            for oldest in list(islice(self._known, max(0, len(self._known) - SESSIONS_MAX))):
                del self._known[oldest]
