"""Switches of real clusters: a planned one while writers write and groups read, and what became of every record; and a
fail-back after a forced one, when the old home took records that nobody saw cross, and is back.
"""

from __future__ import annotations

import base64
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, TopicPartition

from testkit.clients import commit_group_offsets
from testkit.cluster import RigCluster
from testkit.verbs import run_verb
from testkit.watermarks import close_kept_consumers, read_end_offsets
from twinshore.client.consumer import FailoverConsumer
from twinshore.client.producer import FailoverProducer
from twinshore.config.model import Cluster
from twinshore.lab.clients import (
    client_settings,
    create_admin_client,
    create_log_consumer,
    read_group_offsets,
    read_to_end,
)
from twinshore.lab.mirror_process import MirrorProcess, settings_of
from twinshore.lab.processes import LabError
from twinshore.lab.produce import produce_records
from twinshore.state.store import open_store
from twinshore.switch.operations.show import list_switches

_SLICE_S = 0.01
_SETTLE_S = 60.0
KEYS = 20
_DIGITS = 12
_VALUE_BYTES = 100
Sites = Mapping[str, Mapping[str, Any]]


class Acked(NamedTuple):
    """A record that was acknowledged: of its key the `number`-th that this writer sent, where it lies, and when."""

    key: bytes
    number: int
    cluster: str
    partition: int
    offset: int
    at_s: float


def value_of(number: int) -> bytes:
    return b"%0*d" % (_DIGITS, number) + b"." * (_VALUE_BYTES - _DIGITS)


def told(value: bytes, keys: int = KEYS) -> int:
    """Of its key the how-manieth this record is, by its value."""
    return int(value[:_DIGITS]) // keys


class HotWriter:
    """Writes at a rate, from when it is entered until `stop`."""

    def __init__(self, name: str, topic: str, sites: Sites, records_per_s: float) -> None:
        self.name, self._topic, self._records_per_s = name, topic, records_per_s
        self.acked: list[Acked] = []
        self.failed: dict[int, str] = {}
        self._producer = FailoverProducer({"linger.ms": 10}, clusters=sites, topics=[topic], name=name)
        self._stopping = threading.Event()
        self._broken: Exception | None = None
        self._left = 0
        self._thread = threading.Thread(target=self._run, name=f"writer {name}", daemon=True)

    def __enter__(self) -> HotWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> list[Acked]:
        self._stopping.set()
        self._thread.join(2 * _SETTLE_S)
        if self._broken or self._left or self._thread.is_alive():
            raise LabError(f"writer {self.name} did not end well: {self._broken or f'{self._left} have no answer'}")
        return self.acked

    def longest_pause_s(self, since_s: float = 0.0) -> float:
        times = [one.at_s for one in self.acked if one.at_s >= since_s]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def _run(self) -> None:
        try:
            number, began_s = 0, time.monotonic()
            while not self._stopping.is_set():
                due = int((time.monotonic() - began_s) * self._records_per_s)
                for one in range(number, due):
                    key = b"%s-%d" % (self.name.encode(), one % KEYS)
                    self._producer.produce(self._topic, value_of(one), key, on_delivery=self._told)
                number = max(number, due)
                self._producer.poll(_SLICE_S)
                self._stopping.wait(_SLICE_S)
        except Exception as error:
            self._broken = error
        finally:
            self._left = self._producer.close(_SETTLE_S)

    def _told(self, error: KafkaError | None, message: Message | None) -> None:
        if error is not None or message is None:
            self.failed[len(self.failed)] = str(error)
            return
        number = told(message.value() or b"")
        place = self._producer.where(self._topic), message.partition() or 0, message.offset() or 0
        self.acked.append(Acked(bytes(message.key() or b""), number, *place, time.monotonic()))


class HotReader:
    """One member of a separate group."""

    def __init__(self, group: str, topic: str, sites: Sites) -> None:
        self.group, self._topic = group, topic
        self.read: list[tuple[str, int, int]] = []  # cluster, partition, offset
        config = {"group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        self._consumer = FailoverConsumer(config, clusters=sites)
        self._stopping = threading.Event()
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"reader {group}", daemon=True)

    def __enter__(self) -> HotReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(_SETTLE_S)
        if self._broken:
            raise LabError(f"group {self.group} did not end well: {self._broken}")

    def places(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for _, partition, offset in list(self.read):
            found.setdefault(partition, []).append(offset)
        return found

    def _run(self) -> None:
        try:
            self._consumer.subscribe([self._topic])
            while not self._stopping.is_set():
                for message in self._consumer.consume(2_000, 0.1):
                    if error := message.error():
                        raise LabError(f"an error surfaced: {error}")
                    where = self._consumer.where(self._topic)
                    self.read.append((where, message.partition() or 0, message.offset() or 0))
        except Exception as error:
            self._broken = error
        finally:
            self._consumer.close()


TOPIC = "orders"
READY_S = 240.0
SWITCHED_S = 180.0
CAUGHT_UP_S = 60.0
Record = tuple[int, int, bytes, bytes]  # partition, offset, key, value


@dataclass(frozen=True, slots=True)
class Outcome:
    """`lost`: acknowledged and not there. `doubled`: there more than once. `reordered`: of a key behind a later one.
    `unequal`: on one home alone, or elsewhere. `read_again`, `left_out`: by all groups together. `pause_s`: the longest
    between two acknowledgements of one writer; `hold_s`: how long the switch held writers. `failed`: errors that
    writers were told."""

    records: int
    behind: int
    lost: int
    doubled: int
    reordered: int
    unequal: int
    read_again: int
    left_out: int
    failed: int
    pause_s: float
    hold_s: float
    said: str


def planned(
    *,
    writers: int,
    records_per_s: float,
    groups: int,
    seconds: float,
    say: Callable[[str], None],
    command: str,
) -> Outcome:
    """From east to west, in the middle of the time. `command`: the module that is the `twinshore` command. The
    writers and readers are those of the client library."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinshore-switch-")))
        east, west = (stack.enter_context(RigCluster(name, heap_mb=512)) for name in ("east", "west"))
        east.create_topic(TOPIC, partitions=4)
        clusters = {"east": east.cluster, "west": west.cluster}
        store = folder / "store.db"
        text = settings_of(east.cluster, west.cluster, store=store, topics=TOPIC, mirror={"disk_warn_percent": 0})
        mirror = MirrorProcess(folder, text, command=command)
        mirror.start()
        stack.callback(mirror.end)
        admin = create_admin_client(west.cluster)
        until(lambda: TOPIC in admin.list_topics(timeout=10).topics, READY_S, "the twin is there")
        sites = {name: client_settings(cluster) for name, cluster in clusters.items()}
        many = [HotWriter(f"writer{number}", TOPIC, sites, records_per_s / writers) for number in range(writers)]
        readers = [HotReader(f"readers{number}", TOPIC, sites) for number in range(groups)]
        for writer in many:
            stack.enter_context(writer)
        for reads in readers:
            stack.enter_context(reads)
        until(lambda: all(reader.read for reader in readers), READY_S, "the groups read")
        time.sleep(seconds / 2)
        since_s = time.monotonic()
        say("switching")
        words = ["switch", "run", TOPIC, "--to", "west", "--yes"]
        said = run_verb(words, mirror.settings, command=command, within_s=SWITCHED_S).strip().splitlines()[-1]
        time.sleep(seconds / 2)
        acked = [one for writer in many for one in writer.stop()]
        homes = [records_of(cluster, TOPIC) for cluster in clusters.values()]
        wanted = {(partition, offset) for partition, offset, _, _ in homes[1]}
        until(
            lambda: all(len(reader.read) >= len(wanted) for reader in readers),
            CAUGHT_UP_S,
            "the groups catch up",
            must=False,
        )
        with open_store(f"sqlite:///{store}") as opened:
            (shown,) = list_switches(opened)
        return _outcome(acked, many, readers, homes, since_s, shown.state.held_s, said)


def _outcome(
    acked: list[Acked],
    writers: Sequence[HotWriter],
    readers: Sequence[HotReader],
    homes: list[list[Record]],
    since_s: float,
    hold_s: float,
    said: str,
) -> Outcome:
    old, new = homes
    there = Counter((key, told(value)) for _, _, key, value in new)
    places = {(partition, offset) for partition, offset, _, _ in new}
    last: dict[bytes, int] = {}
    reordered = 0
    for _, _, key, value in sorted(new, key=lambda one: one[:2]):
        number = told(value)
        reordered += number < last.get(key, -1)
        last[key] = max(number, last.get(key, -1))
    again = sum(len(found) - len(set(found)) for reader in readers for found in reader.places().values())
    left_out = sum(len(places - {(partition, offset) for _, partition, offset in reader.read}) for reader in readers)
    return Outcome(
        records=len(acked),
        behind=sum(one.cluster == "west" for one in acked),
        lost=sum((one.key, one.number) not in there for one in acked),
        doubled=sum(count - 1 for count in there.values()),
        reordered=reordered,
        unequal=len(set(old) ^ set(new)),
        read_again=again,
        left_out=left_out,
        failed=sum(len(writer.failed) for writer in writers),
        pause_s=max(writer.longest_pause_s(since_s) for writer in writers),
        hold_s=hold_s,
        said=said,
    )


def records_of(cluster: Cluster, topic: str) -> list[Record]:
    """All that consumers of committed records see."""
    with closing(create_log_consumer(cluster, committed=True)) as consumer:
        parts = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        return [
            (number, one.offset() or 0, bytes(one.key() or b""), bytes(one.value() or b""))
            for number in parts
            for one in read_to_end(consumer, topic, number)
        ]


def until(holds: Callable[[], bool], within_s: float, what: str, *, must: bool = True) -> None:
    until_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > until_s:
            if must:
                raise LabError(f"not within {within_s:g} s: {what}")
            return
        time.sleep(0.1)


PARTITIONS, GROUP = 4, "readers"
BEFORE, SINCE = 2_000, 1_000
VERB_S = 420.0


@dataclass(frozen=True, slots=True)
class Returned:
    """`missing`: diverged and in no file; `more`: in a file and not diverged; `listed`: by `switch rescue list`.
    `unequal`: on one of both homes alone afterwards, or elsewhere. `misplaced`: partitions, of both homes, where
    the group does not stand where it should."""

    diverged: int
    listed: int
    missing: int
    more: int
    unequal: int
    misplaced: int
    said: str

    @property
    def wrong(self) -> int:
        return self.missing + self.more + self.unequal + self.misplaced + abs(self.diverged - self.listed)


def returned(diverged: int, *, say: Callable[[str], None], command: str) -> Returned:
    """East takes so many records that do not cross. `command`: the module that is the `twinshore` command."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinshore-failback-")))
        east = stack.enter_context(RigCluster("east", heap_mb=512, via_proxy=True))
        west = stack.enter_context(RigCluster("west", heap_mb=512))
        stack.callback(close_kept_consumers)
        east.create_topic(TOPIC, partitions=PARTITIONS)
        _write(east.cluster, "before", BEFORE)
        store = folder / "store.db"
        text = settings_of(east.wan_cluster, west.cluster, store=store, topics=TOPIC, mirror={"disk_warn_percent": 0})
        mirror = MirrorProcess(folder, text, command=command)
        mirror.start()
        stack.callback(mirror.end)
        before = [end // 2 for end in _ends(east.cluster)]
        _stand(east.cluster, before)
        until(lambda: _places(west.cluster) == before, READY_S, "records and places have crossed")
        points = _ends(east.cluster)
        until(lambda: _ends(west.cluster) == points, READY_S, "the twin is level")
        east.proxy(0).cut()
        _write(east.cluster, "late", diverged)
        late = {(partition, offset, value) for partition, offset, _, value in records_of(east.cluster, TOPIC)}
        late = {one for one in late if one[1] >= points[one[0]]}
        _stand(east.cluster, _ends(east.cluster))
        say("the old home is out of sight: switching by force")
        _verb(command, mirror.settings, "run", TOPIC, "--to", "west", "--force", "--yes")
        _write(west.cluster, "since", SINCE)
        east.proxy(0).heal()
        say("the old home is back")
        said = _verb(command, mirror.settings, "failback", TOPIC, "--old", "east", "--yes")
        until(lambda: _ends(east.cluster) == _ends(west.cluster), READY_S, "east is level")
        homes = [set(records_of(lab.cluster, TOPIC)) for lab in (east, west)]
        saved = _saved(folder / "rescued")
        told = json.loads(_verb(command, mirror.settings, "rescue", "list", "--json"))
        # It has read what had crossed, and of what the new home wrote since nothing. On either side it may read on
        # where it stood as the old home fell silent, and no further on than where the homes part.
        misplaced = sum(
            not low <= now <= high
            for lab in (east, west)
            for low, now, high in zip(before, _places(lab.cluster), points, strict=True)
        )
        return Returned(
            diverged=len(late),
            listed=sum(one["records"] for one in told),
            missing=len(late - saved),
            more=len(saved - late),
            unequal=len(homes[0] ^ homes[1]),
            misplaced=misplaced,
            said=next(line for line in said.splitlines() if line.startswith("done: ")),
        )


def _write(cluster: Cluster, name: str, records: int) -> None:
    numbered = ((number, b"%s %d" % (name.encode(), number)) for number in range(records))
    produce_records(cluster, TOPIC, ((b"key %d" % number, value, number % PARTITIONS) for number, value in numbered))


def _stand(cluster: Cluster, places: list[int]) -> None:
    commit_group_offsets(
        cluster, GROUP, *(TopicPartition(TOPIC, partition, place) for partition, place in enumerate(places))
    )


def _places(cluster: Cluster) -> list[int]:
    return read_group_offsets(cluster, GROUP, TOPIC, list(range(PARTITIONS)))


def _ends(cluster: Cluster) -> list[int]:
    return read_end_offsets(cluster, TOPIC, PARTITIONS)


def _saved(folder: Path) -> set[tuple[int, int, bytes]]:
    """Partition, offset and value of each record in a file."""
    found = set()
    for path in folder.glob("*.jsonl"):
        head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
        found |= {(head["partition"], one["offset"], base64.b64decode(one["value"])) for one in lines[:-1]}
    return found


def _verb(command: str, settings: Path, *words: str) -> str:
    return run_verb(["switch", *words], settings, command=command, within_s=VERB_S)
