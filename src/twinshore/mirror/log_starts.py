"""A twin's log begins where its source's does: retention is off there, and what the source deletes is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping

from twinshore.fleet import KafkaError, Link, NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.mirror.once import Once
from twinshore.store import Store


class LogStarts:
    """`doubt` hears of topics whose twins may be others by now; `log` gets a sentence for what was done or refused.
    `never`: nothing is cut, ever."""

    def __init__(
        self,
        link: Link,
        target: KafkaCluster,
        store: Store,
        *,
        never: bool,
        doubt: Callable[[Iterable[str]], object],
        log: Callable[[str], None],
    ) -> None:
        self._link, self._target, self._store, self._doubt, self._log = link, target, store, doubt, log
        self._never = never
        self._refused: dict[str, Once] = {}

    def cut(self, before: Mapping[NamedPartition, int], done: MutableMapping[NamedPartition, int]) -> None:
        """Cuts the twins of these partitions below the offsets, and notes in `done` which were. A topic whose twin
        cannot be cut hinders no other."""
        if not before or self._never:
            return
        ids = {row.topic: row.target_topic_id for row in self._store.twins(self._link.name)}
        count = 0
        for topic in sorted({named.topic for named in before} & ids.keys()):
            ours = {named: at for named, at in before.items() if named.topic == topic}
            twin = self._link.twin_of(topic)
            once = self._refused.setdefault(topic, Once(self._log))
            called = {NamedPartition(twin, named.partition): at for named, at in ours.items()}
            try:
                cut, failed = self._target.cut_each(called, {twin: bytes.fromhex(ids[topic])})
            except KafkaError as error:
                cut, failed = {}, dict.fromkeys(called, error)
            if failed:
                self._doubt([topic])
                why = next(iter(failed.values())).message
                once.say(f"{self._link.name}: the log of twin {twin} was not cut to its source's start: {why}")
            else:
                once.well(f"{self._link.name}: the log of twin {twin} is cut to its source's start again")
            done.update((named, at) for named, at in ours.items() if NamedPartition(twin, named.partition) in cut)
            count += len(cut)
        if count:
            self._log(f"{self._link.name}: cut {count} twins to their sources' log starts")
