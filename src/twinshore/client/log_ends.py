"""Log end offsets of several clusters. Each cluster has a thread, so an unreachable one blocks no call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from twinshore.client.sites import Site, client_thread
from twinshore.config.errors import KafkaError
from twinshore.config.frozen import ENDS_CLIENT_ID_PREFIX
from twinshore.config.model import TopicPartition
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind

POLL_INTERVAL_S = 0.05
RETRY_DELAY_S = 0.5
REQUEST_TIMEOUT_S = 2.0


class LogEndAnswer(NamedTuple):
    """The log end at `asked_s` or later. Records of open transactions count."""

    cluster: str
    partition: TopicPartition
    offset: int
    asked_s: float


class LogEndPoller:
    """Polls log ends, for one calling thread at a time.

    `news` is called from a polling thread when answers arrive. `start` starts a thread for each cluster, `end` ends
    them, `stop` also waits for a few seconds.
    """

    def __init__(self, sites: Mapping[str, Site], name: str, news: Callable[[], None]) -> None:
        self._asked = {cluster: _ClusterPoller(site, name, news) for cluster, site in sites.items()}

    def start(self) -> None:
        for asked in self._asked.values():
            asked.start()

    def want(self, cluster: str, partitions: Iterable[TopicPartition]) -> None:
        """Ask for these log ends soon, not before now."""
        self._asked[cluster].want(partitions)

    def take_answers(self) -> Iterator[LogEndAnswer]:
        for asked in self._asked.values():
            yield from asked.take_answers()

    def silent_s(self, cluster: str, partition: TopicPartition) -> float:
        """Returns for how long requests have failed; 0 where none is due."""
        return self._asked[cluster].silent_s(partition)

    def refusal(self) -> KafkaError | None:
        """Returns an error that no retry cures, such as a missing right."""
        return next((asked.refused for asked in self._asked.values() if asked.refused), None)

    def end(self) -> None:
        for asked in self._asked.values():
            asked.end()

    def stop(self) -> None:
        self.end()
        for asked in self._asked.values():
            asked.stop()


class UnansweredTimes:
    """For how long each log end has had no answer. An attempt counts for its timeout at most: a suspended process did
    not ask, and must not take a healthy cluster for dead.
    """

    def __init__(self) -> None:
        self._vain_s: dict[TopicPartition, float] = {}

    def want(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._vain_s.setdefault(partition, 0.0)

    def wanted(self) -> list[TopicPartition]:
        return list(self._vain_s)

    def in_vain(
        self, partitions: Iterable[TopicPartition], took_s: float, at_most_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        for partition in partitions:
            if partition in self._vain_s:
                self._vain_s[partition] += min(took_s, at_most_s)

    def answered(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            del self._vain_s[partition]

    def of(self, partition: TopicPartition) -> float:
        return self._vain_s.get(partition, 0.0)


class _ClusterPoller:
    """Polls one cluster, and repeats unanswered requests, to notice when the cluster is back."""

    def __init__(self, site: Site, name: str, news: Callable[[], None]) -> None:
        self._site, self._name, self._news = site, name, news
        self.refused: KafkaError | None = None
        self._silences = UnansweredTimes()
        self._tried, self._tried_s = list[TopicPartition](), steady_s()
        self._found: list[LogEndAnswer] = []
        self._guard = threading.Lock()
        self._due, self._stopping = threading.Event(), threading.Event()
        self._thread = client_thread("ends", f"{name} {site.name}", self._run)

    def start(self) -> None:
        self._thread.start()

    def want(self, partitions: Iterable[TopicPartition]) -> None:
        with self._guard:
            self._silences.want(partitions)
            if self._silences.wanted():
                self._due.set()

    def take_answers(self) -> list[LogEndAnswer]:
        with self._guard:
            found, self._found = self._found, []
        return found

    def silent_s(self, partition: TopicPartition) -> float:
        with self._guard:
            return self._silences.of(partition)

    def end(self) -> None:
        self._stopping.set()
        self._due.set()

    def stop(self) -> None:
        if self._thread.ident is not None:
            self._thread.join(2 * REQUEST_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._guard:
                self._tried, self._tried_s = self._silences.wanted(), steady_s()
            try:
                kafka = KafkaCluster(
                    self._site.cluster,
                    client_id=f"{ENDS_CLIENT_ID_PREFIX}{self._name}",
                    cluster_id=self._site.cluster_id,
                    patience_s=REQUEST_TIMEOUT_S,
                    call_s=REQUEST_TIMEOUT_S / 2,
                )
                with closing(kafka):
                    self._ask(kafka)
            except Exception as error:  # over new connections: cached metadata may be wrong
                if isinstance(error, KafkaError) and not error.retriable:
                    self.refused = error
                with self._guard:
                    self._silences.in_vain(self._tried, steady_s() - self._tried_s)
                self._news()
                self._wait_again()
                self._due.set()

    def _ask(self, kafka: KafkaCluster) -> None:
        """Poll until stopped. Raises where the cluster does not answer."""
        while not self._stopping.is_set():
            self._due.wait()
            partitions, asked_s = self._begin()
            if not partitions or self._stopping.is_set():
                continue
            found, failed = kafka.offsets_of_each(partitions, OffsetKind.HIGH_WATERMARK)
            with self._guard:
                for partition, offset in found.items():
                    self._found.append(LogEndAnswer(self._site.name, partition, offset, asked_s))
                self._silences.answered(found)
                self._silences.in_vain(failed, steady_s() - asked_s)
                if failed:
                    self._due.set()
            refused = [error for error in failed.values() if not error.retriable]
            self.refused = refused[0] if refused else None
            self._news()
            if failed and not found:
                self._wait_again()
            else:
                self._stopping.wait(POLL_INTERVAL_S)

    def _begin(self) -> tuple[list[TopicPartition], float]:
        with self._guard:
            self._due.clear()
            self._tried, self._tried_s = self._silences.wanted(), steady_s()
        return self._tried, self._tried_s

    def _wait_again(self) -> None:
        began_s = steady_s()
        self._stopping.wait(RETRY_DELAY_S)
        with self._guard:
            self._silences.in_vain(self._tried, steady_s() - began_s, RETRY_DELAY_S)
