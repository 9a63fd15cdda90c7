"""The store, which a mirror may create after the proxy starts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from twinshore.config.errors import StoreError, StoreVersionError
from twinshore.config.model import Link
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import steady_s
from twinshore.proxy.core.model import UNKNOWN_RECORDS, HomeRoute, ReplicatedTails, build_replicated_tails
from twinshore.replication.links import load_all_links
from twinshore.state.opening import open_if_exists
from twinshore.state.store import Store

log = logging.getLogger(__name__)

OPEN_RETRY_INTERVAL_S: Final = 2.0
WITHOUT_STORE_CONSEQUENCE: Final = (
    "each topic is led to where links and clusters say, else to the first cluster that has it"
)
NAMED_MAX = 5


class LazyStore:
    """A store opened once it exists. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._guard = threading.Lock()
        self._looked_s = -OPEN_RETRY_INTERVAL_S
        self._store: Store | None = None
        self._missed = False
        self._refused: StoreVersionError | None = None

    def get(self) -> Store | None:
        """Returns the store; None if there is none yet. StoreError without an answer."""
        with self._guard:
            if self._store is None and steady_s() >= self._looked_s + OPEN_RETRY_INTERVAL_S:
                # After an error the store does not count as missing.
                try:
                    self._store = open_if_exists(self._settings)
                except StoreVersionError as error:
                    self._refused = error
                    raise
                self._looked_s = steady_s()
                if self._store is None and not self._missed:
                    log.warning(f"there is no store at {self._settings.store.url}: {WITHOUT_STORE_CONSEQUENCE}")
                elif self._store is not None and self._missed:
                    log.info(f"there is a store at {self._settings.store.url} now")
                self._missed = self._store is None
            return self._store

    def check_version(self) -> None:
        """Raise StoreVersionError if opening has found another version's tables. Does not ask the store."""
        if self._refused is not None:
            raise self._refused

    def links(self) -> Sequence[Link]:
        store = self.get()
        return load_all_links(self._settings, store) if store is not None else tuple(self._settings.links)

    def close(self) -> None:
        with self._guard:
            if self._store is not None:
                self._store.close()
                self._store = None
                self._looked_s = float("inf")


def read_replicated_tails(store: LazyStore, link: str, topics: Mapping[str, HomeRoute]) -> dict[str, ReplicatedTails]:
    """Read the tails that `link` replicated. StoreError if the store does not have them."""
    there = store.get()
    if there is None:
        raise StoreError("proxy.no-store")
    known = there.replicated_prefixes.of(link, {topic: lead.term for topic, lead in topics.items()})
    return {topic: build_replicated_tails(topic, lead, known) for topic, lead in topics.items()}


def describe_unknown_tails(found: Mapping[str, ReplicatedTails]) -> str:
    """Returns what may be written twice, else empty."""
    unsure = {topic: sum(one.unsure.values()) for topic, one in found.items() if one.unsure}
    if not unsure:
        return ""
    names, offsets = join_names(sorted(unsure), NAMED_MAX), sum(unsure.values())
    why = f"of the last {count_phrase(offsets, 'offset')} it is not known who wrote them"
    if offsets >= UNKNOWN_RECORDS:
        why = "so many producers wrote there that some were forgotten"
    return f"{names} came by force, and {why}: as much may be written twice"
