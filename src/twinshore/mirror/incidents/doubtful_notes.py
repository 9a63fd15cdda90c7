"""One row for a link of what strangers wrote of its source's topics and nothing bears out, however much that is."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from twinshore.fleet import Link
from twinshore.mirror.incidents.kinds import known
from twinshore.mirror.topology.claims import doubts_in_words
from twinshore.store import Incident, IncidentKind, Store

KIND = IncidentKind.DOUBTFUL_NOTE


class DoubtfulNotes:
    """`log` gets the sentence too."""

    def __init__(self, link: Link, store: Store, log: Callable[[str], None]) -> None:
        self._link, self._store, self._log = link, store, log

    def tell(self, topics: Collection[str]) -> None:
        """The open row speaks of these topics from now on; it is over where there are none."""
        name, now_ms = self._link.name, int(time.time() * 1000)
        sentence = doubts_in_words(self._link.source, topics) if topics else ""
        rows = [row for row in self._store.incidents(name, open_only=True) if row.incident.kind is KIND]
        for row in [row for row in rows if row.incident.sentence != sentence]:
            self._store.close_incident(row.id, now_ms=now_ms)
        if sentence and all(row.incident.sentence != sentence for row in rows):
            self._store.add_incident(Incident(name, "", -1, KIND, -1, -1, known(KIND).policy, sentence), now_ms=now_ms)
            self._log(f"{name}: {sentence}")
