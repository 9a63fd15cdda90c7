"""Where logs end on each of some clusters, asked in a thread for each: no call waits for a cluster that is silent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from twinshore.client.sites import Site
from twinshore.fleet import KafkaError, NamedPartition
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster, OffsetKind

EVERY_S = 0.05
AGAIN_S = 0.5
PATIENCE_S = 2.0


class End(NamedTuple):
    """The log ended there at the moment `asked_s` or later. A record of an open transaction counts."""

    cluster: str
    named: NamedPartition
    offset: int
    asked_s: float


class LogEnds:
    """One thread at a time may call it. `news` is called from another thread when there are answers."""

    def __init__(self, sites: Mapping[str, Site], name: str, news: Callable[[], None]) -> None:
        self._asked = {cluster: _Asked(site, name, news) for cluster, site in sites.items()}

    def want(self, cluster: str, parts: Iterable[NamedPartition]) -> None:
        """These are asked soon, at a moment behind this one."""
        self._asked[cluster].want(parts)

    def answers(self) -> Iterator[End]:
        for asked in self._asked.values():
            yield from asked.answers()

    def silent_s(self, cluster: str, named: NamedPartition) -> float:
        """For how long the log's end has been asked for without an answer; 0 where nothing is due."""
        return self._asked[cluster].silent_s(named)

    def refusal(self) -> KafkaError | None:
        """An answer that will not be another one by itself, as where a right is lacking."""
        return next((asked.refused for asked in self._asked.values() if asked.refused), None)

    def stop(self) -> None:
        for asked in self._asked.values():
            asked.stop()


class _Asked:
    """One cluster. What has no answer is asked for again until it has, so that it is known when the cluster is back."""

    def __init__(self, site: Site, name: str, news: Callable[[], None]) -> None:
        self._site, self._name, self._news = site, name, news
        self.refused: KafkaError | None = None
        self._since: dict[NamedPartition, float] = {}  # from when on it has no answer
        self._found: list[End] = []
        self._guard = threading.Lock()
        self._due, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{name} ends of {site.name}", daemon=True)
        self._thread.start()

    def want(self, parts: Iterable[NamedPartition]) -> None:
        now_s = steady_s()
        with self._guard:
            for named in parts:
                self._since.setdefault(named, now_s)
            if self._since:
                self._due.set()

    def answers(self) -> list[End]:
        with self._guard:
            found, self._found = self._found, []
        return found

    def silent_s(self, named: NamedPartition) -> float:
        with self._guard:
            since_s = self._since.get(named)
        return 0.0 if since_s is None else steady_s() - since_s

    def stop(self) -> None:
        self._stopping.set()
        self._due.set()
        self._thread.join(2 * PATIENCE_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                kafka = KafkaCluster(
                    self._site.cluster,
                    client_id=f"ends-{self._name}",
                    cluster_id=self._site.cluster_id,
                    patience_s=PATIENCE_S,
                    call_s=PATIENCE_S / 2,
                )
                with closing(kafka):
                    self._ask(kafka)
            except Exception as error:  # over new connections: what was remembered may be what is wrong
                if isinstance(error, KafkaError) and not error.retriable:
                    self.refused = error
                self._news()
                self._stopping.wait(AGAIN_S)
                self._due.set()

    def _ask(self, kafka: KafkaCluster) -> None:
        """Until the end. Raises where the cluster does not answer."""
        while not self._stopping.is_set():
            self._due.wait()
            with self._guard:
                self._due.clear()
                parts, asked_s = list(self._since), steady_s()
            if not parts or self._stopping.is_set():
                continue
            found, failed = kafka.offsets_of_each(parts, OffsetKind.HIGH_WATERMARK)
            with self._guard:
                for named, offset in found.items():
                    self._found.append(End(self._site.name, named, offset, asked_s))
                    del self._since[named]
                if failed:
                    self._due.set()
            refused = [error for error in failed.values() if not error.retriable]
            self.refused = refused[0] if refused else None
            self._news()
            self._stopping.wait(AGAIN_S if failed and not found else EVERY_S)
