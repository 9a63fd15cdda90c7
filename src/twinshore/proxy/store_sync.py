"""Exchanges circuit breakers and offset resets with the store, reads live settings, and polls the lag of twins.

Without the store, breakers and settings stay as last read, and counts are written later. A process that starts then
uses the memory file, or waits a while.

The poller reads log ends of topics that clients want, and `near` decides. Without an answer the lag grows, and clients
go home.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter

from twinshore.client.discovery import config_service
from twinshore.config.frozen import PROXY_CLIENT_ID
from twinshore.config.model import Cluster, Link, OffsetMode, TopicPartition, TwinNaming
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.config.settings import Settings
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.proxy.core.breakers import CircuitBreakers, DroppedRecords
from twinshore.proxy.core.follower_fetch import (
    BoundsByTopic,
    ExactTwin,
    FollowerFetch,
    LinkCopy,
    TwinLogBounds,
    build_topic_check,
    find_exact_twins,
)
from twinshore.proxy.core.model import RoutingTable
from twinshore.proxy.core.offset_reset import OffsetResets, list_awaited_keys
from twinshore.proxy.lazy_store import LazyStore
from twinshore.runtime.live_settings import LiveHeard, LiveSettings
from twinshore.state.core import proxy_values
from twinshore.state.store import Store

log = logging.getLogger(__name__)

_ResetHeard = tuple[int, tuple[proxy_values.ResetRow, ...]]
SYNC_INTERVAL_S: Final = 0.5
# Without changes, as a sign of life.
REPORT_INTERVAL_S: Final = 2.0
SHUTDOWN_TIMEOUT_S: Final = 3.0
FIRST_SYNC_TIMEOUT_S: Final = 5.0  # the wait for a silent store, without remembered breakers


class ResetSync:
    """Reads resets, and reports when the process holds a group.

    `on_its_way`: whether requests counted under this name are pending. `changed` is called if other groups are held.
    """

    def __init__(
        self,
        resets: OffsetResets | None = None,
        on_its_way: Callable[[str], bool] = lambda _: False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._resets, self._on_its_way, self._changed = resets or OffsetResets(), on_its_way, changed
        self._told: dict[str, int] = {}

    def read(self, store: Store) -> _ResetHeard | None:
        """Read the resets, in a thread; None if unchanged."""
        return store.proxy_resets.newer(self._resets.revision)

    def take(self, heard: _ResetHeard | None) -> None:
        if heard is not None and self._resets.take(heard[1], heard[0]):
            self._changed()

    def tick(self, now_ms: int) -> None:
        """Set the time: without its owner, a hold ends at `until_ms`."""
        if self._resets.tick(now_ms):
            self._changed()

    def words(self, instance: str, now_ms: int) -> list[proxy_values.ResetStatusRow]:
        """Returns reports due: a group is held once no earlier request is pending; `waits` members wait."""
        held = self._resets.held()
        self._told = {row.run: self._told[row.run] for row in held if row.run in self._told}
        found = []
        for row in held:
            waits = self._resets.waiting[row.group]
            if self._told.get(row.run) != waits and (row.run in self._told or not self._is_busy(row)):
                found.append(proxy_values.ResetStatusRow(instance, row.run, waits, now_ms))
        return found

    def _is_busy(self, row: proxy_values.ResetRow) -> bool:
        return any(map(self._on_its_way, list_awaited_keys(row)))

    def told(self, words: Sequence[proxy_values.ResetStatusRow]) -> None:
        """Note that the store has these reports."""
        self._told |= {row.run: row.waiting_members for row in words}


T = TypeVar("T")
_Heard = tuple[int, tuple[proxy_values.BreakerRow, ...]]
_MEMORY: Final = TypeAdapter(tuple[_Heard, LiveHeard])


async def _repeat(work: Callable[[], None]) -> None:
    while True:
        work()
        await asyncio.sleep(SYNC_INTERVAL_S)


class StoreSync:
    """Exchanges breakers and resets with the store, and reads live settings.

    `serves`: this process, as others see it. `memory`: the file with breakers and settings, for a start without the
    store.
    """

    def __init__(
        self,
        store: Callable[[], Store | None],
        breakers: CircuitBreakers,
        serves: proxy_values.ProxyInstanceRow,
        resets: ResetSync | None = None,
        memory: Path | None = None,
        live: LiveSettings | None = None,
    ) -> None:
        self._memory, self._unkept = memory, RepeatFilter(log)
        self._live = live or LiveSettings(Settings({}))
        self._heard: _Heard = (0, ())
        self._live_heard: LiveHeard = (-1, ())
        self._resets = resets or ResetSync()
        self._stores, self._breakers, self._serves = store, breakers, serves
        self._store: Store | None = None
        self._repeat_filter = RepeatFilter(log)
        self._rows: dict[proxy_values.BreakerKey, proxy_values.BreakerCountRow] = {}
        self._dropped: dict[tuple[str, str, int], int] = {}
        self._told_s, self._told_revisions = -REPORT_INTERVAL_S, (-1, -1)
        self._threads = ThreadPoolExecutor(1, "control")
        self._last: set[proxy_values.BreakerKey] = set()

    async def first(self) -> None:
        """Read breakers and settings before clients are served."""
        self._tick()
        await self._exchange()
        if (
            not self._breakers.known
            and self._memory is not None
            and (kept := parse_memory(config_service.load_last_push(self._memory) or ""))
        ):
            self._take(*kept)
            log.warning(f"breakers and live settings are as {self._memory} remembers them until the store answers")
        until_s = steady_s() + FIRST_SYNC_TIMEOUT_S
        while not self._breakers.known and steady_s() < until_s:
            await asyncio.sleep(SYNC_INTERVAL_S)
            await self._exchange()
        if not self._breakers.known:
            log.warning(
                "the breakers are unknown, so all are closed until the store answers, and settings are those of the"
                " file; [proxy] memory_file keeps them"
            )

    async def run(self) -> None:
        """Run until cancelled. A store that hangs delays no breaker that opens or closes by itself."""
        await asyncio.gather(_repeat(self._tick), self._exchanges())

    async def end(self) -> None:
        """Write the last counts, and that the process has ended."""
        if self._store is not None:
            self._told_s = -REPORT_INTERVAL_S
            with suppress(TimeoutError):
                async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
                    await self._exchange()
                    await self._call(partial(self._leave, self._store))
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _exchanges(self) -> None:
        while True:
            await self._exchange()
            await asyncio.sleep(SYNC_INTERVAL_S)

    def _tick(self) -> None:
        self._breakers.tick(steady_s(), wall_ms())
        self._resets.tick(wall_ms())
        tripped = self._breakers.all_tripped()
        for key in tripped - self._last:
            log.warning(f"{_named(key)} opened: a limit was passed", extra={"topic": key.topic})
        for key in self._last - tripped:
            log.info(f"{_named(key)} closed again", extra={"topic": key.topic})
        self._last = tripped

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _exchange(self) -> None:
        try:
            self._store = await self._call(self._stores)
            if self._store is None:
                self._breakers.known = True
                return
            heard, settings, resets = await self._call(partial(self._read, self._store))
            self._take(heard, settings)
            self._breakers.known = True
            self._resets.take(resets)
            if heard is not None or settings is not None:
                await self._call(partial(self._keep, (self._heard, self._live_heard)))
            await self._tell(self._store)
        except Exception as error:  # else no further breaker would be read
            self._repeat_filter.say(f"{describe_error(error)}: breakers and live settings stay as they are")
            return
        self._repeat_filter.well("the store answers again: breakers and live settings are as it says")

    def _read(self, store: Store) -> tuple[_Heard | None, LiveHeard | None, _ResetHeard | None]:
        """Read what is newer, in a thread."""
        return store.breakers.newer(self._breakers.revision), self._live.read(store), self._resets.read(store)

    def _take(self, heard: _Heard | None, settings: LiveHeard | None) -> None:
        if heard is not None:
            self._breakers.take(heard[1], heard[0])
            self._heard = heard
        if settings is not None:
            self._live.take(settings)
            self._live_heard = settings

    def _keep(self, heard: tuple[_Heard, LiveHeard]) -> None:
        if self._memory is None:
            return
        try:
            config_service.save_last_push(self._memory, _MEMORY.dump_json(heard).decode())
        except (OSError, ValueError) as error:
            self._unkept.say(
                f"{self._memory} cannot be written: {error}; a proxy that starts without the store has no breakers"
            )
        else:
            self._unkept.well()

    async def _tell(self, store: Store) -> None:
        if words := self._resets.words(self._serves.id, wall_ms()):
            await self._call(partial(store.proxy_resets.tell, words))
            self._resets.told(words)
        drops = self._drops()
        revisions = self._breakers.revision, self._live.obeyed
        quiet = not drops and revisions == self._told_revisions
        if quiet and steady_s() - self._told_s < REPORT_INTERVAL_S:
            return
        now_ms, ended = wall_ms(), list(self._breakers.ended)
        counts = self._counts(now_ms)
        serves = replace(self._serves, revision=revisions[0], seen_ms=now_ms, settings_revision=revisions[1])
        await self._call(partial(store.proxies.tell, serves, list(counts.values()), drops))
        self._rows |= counts
        self._told_s, self._told_revisions = steady_s(), revisions
        self._dropped |= {(row.topic, row.client, row.since_ms): row.records for row in drops}
        for one in ended:
            self._breakers.ended.remove(one)
            self._dropped.pop((one[0], one[1], one[2].since_ms), None)

    def _counts(self, now_ms: int) -> dict[proxy_values.BreakerKey, proxy_values.BreakerCountRow]:
        """Returns counts changed since the last report."""
        found: dict[proxy_values.BreakerKey, proxy_values.BreakerCountRow] = {}
        for key, tally in self._breakers.tallies.items():
            row = proxy_values.BreakerCountRow(
                self._serves.id, *key, tally.requests, tally.records, tally.bytes, self._breakers.tripped(key), now_ms
            )
            known = self._rows.get(key)
            if known is None or replace(known, changed_ms=now_ms) != row:
                found[key] = row
        return found

    def _drops(self) -> list[proxy_values.DroppedRecordsRow]:
        open_now = [(topic, client, dropped) for (topic, client), dropped in self._breakers.drops.items()]
        rows = [self._row(topic, client, dropped) for topic, client, dropped in [*self._breakers.ended, *open_now]]
        return [row for row in rows if self._dropped.get((row.topic, row.client, row.since_ms)) != row.records]

    def _row(self, topic: str, client: str, dropped: DroppedRecords) -> proxy_values.DroppedRecordsRow:
        partitions = ",".join(map(str, sorted(dropped.partitions)))
        where = (self._serves.id, topic, client, dropped.since_ms, dropped.breaker, partitions)
        return proxy_values.DroppedRecordsRow(*where, dropped.records, dropped.bytes, dropped.until_ms)

    def _leave(self, store: Store) -> None:
        store.proxies.leave(self._serves.id)
        store.proxies.forget_before(wall_ms())


def _named(key: proxy_values.BreakerKey) -> str:
    return f"the {key.kind} breaker of {key.topic} for clients {key.client}"


def parse_memory(text: str) -> tuple[_Heard, LiveHeard] | None:
    """Parse what `_keep` wrote; None if invalid."""
    try:
        return _MEMORY.validate_json(text)
    except ValueError:
        return None


# Checks take at most this part of the time, however many topics there are.
POLL_TIME_FRACTION: Final = 0.2
COPIES_INTERVAL_S: Final = 2.0
# Log starts and leaders change seldom.
LOG_STARTS_INTERVAL_S: Final = 5.0
CLUSTER_TIMEOUT_S: Final = 1.0

# Ids to ask for by topic: links may know several.
TopicIds = Mapping[str, frozenset[str]]


class MirrorLagPoller:
    """Polls the lag of twins. `seen` returns the current routing table."""

    def __init__(
        self,
        clusters: Sequence[Cluster],
        follower_fetch: FollowerFetch,
        seen: Callable[[], RoutingTable],
        store: LazyStore,
    ) -> None:
        self._follower_fetch, self._seen, self._store = follower_fetch, seen, store
        self._sides = {cluster.name: _Side(cluster) for cluster in clusters}
        self._repeat_filter = RepeatFilter(log)
        self._clusters_told = {
            cluster.name: RepeatFilter(logging.LoggerAdapter(log, {"cluster": cluster.name})) for cluster in clusters
        }
        self._threads = ThreadPoolExecutor(len(clusters) + 1, "levels")
        self._copies: list[LinkCopy] = []
        self._copies_of: frozenset[str] = frozenset()
        self._read_s = -COPIES_INTERVAL_S

    async def run(self) -> None:
        """Run until cancelled. Lag also grows while a look hangs."""
        await asyncio.gather(_repeat(self._tick), self._looks())

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for side in self._sides.values():
            side.close()

    def _tick(self) -> None:
        self._follower_fetch.tick(steady_s(), self._seen())

    async def _looks(self) -> None:
        while True:
            began_s = steady_s()
            if topics := frozenset(self._follower_fetch.wanted()):
                await self._look(topics)
                self._tick()
            await asyncio.sleep(max(SYNC_INTERVAL_S, (steady_s() - began_s) * (1 / POLL_TIME_FRACTION - 1)))

    async def _look(self, topics: frozenset[str]) -> None:
        """Ask twins first: one that is longer than its home was so before, not only asked later."""
        await self._read_copies(topics)
        table = self._seen()
        homes = {topic: home for topic in topics if (home := table.route(topic)) is not None}
        twins = find_exact_twins(self._copies, homes)
        found = await self._ask_each(_ids((twin.cluster, topic, twin.topic_id) for topic, twin in _each(twins)), table)
        asked_s = steady_s()
        ends = await self._ask_each(_ids((homes[topic], topic, twin.home_id) for topic, twin in _each(twins)), table)
        looks = []
        for topic in topics:
            home, some = homes.get(topic, ""), twins.get(topic, ())
            term = table.leads[topic].term if topic in table.leads else 0
            looks.append(build_topic_check(topic, home, term, asked_s, ends.get(home, {}), some, found))
        self._follower_fetch.take(looks)

    async def _read_copies(self, topics: frozenset[str]) -> None:
        if topics <= self._copies_of and steady_s() - self._read_s < COPIES_INTERVAL_S:
            return
        try:
            self._copies = await self._call(partial(self._read, topics))
        except Exception as error:  # else readers would stay where they are for ever
            self._repeat_filter.say(f"{describe_error(error)}: which topics are twins stays as it was known")
            return
        self._repeat_filter.well("the store answers again: twins are as it says")
        self._copies_of, self._read_s = topics, steady_s()

    def _read(self, topics: frozenset[str]) -> list[LinkCopy]:
        store = self._store.get()
        if store is None:
            return []
        copies: dict[tuple[str, str, str, str, str], set[int]] = {}
        for link in _exact(self._store.links(), self._sides):
            rows = store.twins.flowing(link.name, topics)
            mapped = {topic for topic, _ in store.offset_runs.reached(link.name)}
            for row in rows:
                if row.topic in mapped:
                    continue
                key = link.source, link.target, row.topic, row.source_topic_id, row.target_topic_id
                copies.setdefault(key, set()).add(row.partition)
        return [LinkCopy(*key, frozenset(parts)) for key, parts in copies.items()]

    async def _ask_each(self, wanted: Mapping[str, TopicIds], table: RoutingTable) -> dict[str, BoundsByTopic]:
        """Ask clusters that answer; returns log bounds by cluster."""
        names = [name for name in wanted if name in self._sides and table.clusters[name].answers]
        found = await asyncio.gather(*(self._ask(name, wanted[name]) for name in names))
        return dict(zip(names, found, strict=True))

    async def _ask(self, cluster: str, topics: TopicIds) -> BoundsByTopic:
        try:
            found = await self._call(partial(self._sides[cluster].ask, topics))
        except Exception as error:  # one cluster's error must not affect the others
            self._clusters_told[cluster].say(f"cluster {cluster}: {describe_error(error)}; nobody is led to its twins")
            return {}
        self._clusters_told[cluster].well(f"cluster {cluster} says again how level its twins are")
        return found

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _exact(links: Iterable[Link], clusters: Mapping[str, object]) -> list[Link]:
    """Returns links behind the proxy whose twins have the source's names and offsets."""
    exact = [link for link in links if link.naming is TwinNaming.SAME and link.mode is OffsetMode.EXACT]
    return [link for link in exact if link.source in clusters and link.target in clusters]


def _each(twins: Mapping[str, Iterable[ExactTwin]]) -> Iterator[tuple[str, ExactTwin]]:
    return ((topic, twin) for topic, some in twins.items() for twin in some)


def _ids(named: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, frozenset[str]]]:
    """Group (cluster, topic, id) by cluster and topic."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for cluster, topic, topic_id in named:
        there = found.setdefault(cluster, {})
        there[topic] = there.get(topic, frozenset()) | {topic_id}
    return found


class _Side:
    """One cluster; requests run one at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._kafka = KafkaCluster(
            cluster, client_id=PROXY_CLIENT_ID, patience_s=CLUSTER_TIMEOUT_S, call_s=CLUSTER_TIMEOUT_S
        )
        self._starts: dict[TopicPartition, int] = {}
        self._topics: frozenset[str] = frozenset()
        self._looked_s = -LOG_STARTS_INTERVAL_S

    def close(self) -> None:
        self._kafka.close()

    def ask(self, ids: TopicIds) -> BoundsByTopic:
        """Returns log bounds by topic, without topics that have another id now."""
        if steady_s() - self._looked_s >= LOG_STARTS_INTERVAL_S:
            self._topics, self._starts, self._looked_s = frozenset(), {}, steady_s()
        with self._kafka.errand():
            anew = not ids.keys() <= self._topics
            known = self._kafka.metadata(sorted(ids), refresh=anew).topics
            same = [topic for topic in known.values() if topic.topic_id.hex() in ids.get(topic.name, ())]
            now = {topic.name: topic.topic_id.hex() for topic in same}
            leaders = {TopicPartition(topic.name, tp.partition): tp.leader for topic in same for tp in topic.partitions}
            ends, failed = self._kafka.offsets_of_each(leaders, OffsetKind.HIGH_WATERMARK)
            if anew:
                starts, _ = self._kafka.offsets_of_each(leaders, OffsetKind.EARLIEST)
                self._starts |= starts
                self._topics |= ids.keys()
        self._topics -= {partition.topic for partition in failed}
        found: dict[tuple[str, str], dict[int, TwinLogBounds]] = {}
        for partition, end in ends.items():
            if partition in self._starts:
                there = found.setdefault((partition.topic, now[partition.topic]), {})
                there[partition.partition] = TwinLogBounds(leaders[partition], self._starts[partition], end)
        return found
