"""One row for a link of what strangers wrote of its source's topics and nothing bears out, however much that is."""

from __future__ import annotations

from collections.abc import Callable, Collection

from twinshore.fleet import Link
from twinshore.mirror.incidents import link_row
from twinshore.mirror.topology.claims import doubts_in_words
from twinshore.store import IncidentKind, Store


class DoubtfulNotes:
    """`log` gets the sentence too."""

    def __init__(self, link: Link, store: Store, log: Callable[[str], None]) -> None:
        self._link, self._store, self._log = link, store, log

    def tell(self, topics: Collection[str]) -> None:
        """The open row speaks of these topics from now on; it is over where there are none."""
        sentence = doubts_in_words(self._link.source, topics) if topics else ""
        link_row.tell(self._store, self._link.name, IncidentKind.DOUBTFUL_NOTE, sentence, self._log)
