"""A planned switch while writers write and groups read, and what became of every record."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from twinshore.fleet import Cluster
from twinshore.lab import LabCluster, LabError
from twinshore.lab.clients import client_settings
from twinshore.lab.stages.following_reader import FollowingReader
from twinshore.lab.stages.following_writer import Acked, FollowingWriter, Writing, told
from twinshore.lab.stages.hot_clients import HotReader, HotWriter
from twinshore.lab.stages.mirror_process import MirrorProcess, run_verb, settings_of
from twinshore.store import open_store
from twinshore.switch.operations.showing import switches

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
    hot: bool = False,
) -> Outcome:
    """From east to west, in the middle of the time. `command`: the module that is the `twinshore` command. `hot`: the
    writers and readers are those of the client library."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinshore-switch-")))
        east, west = (stack.enter_context(LabCluster(name, heap_mb=512)) for name in ("east", "west"))
        east.create_topic(TOPIC, partitions=4)
        clusters = {"east": east.cluster, "west": west.cluster}
        store = folder / "store.db"
        text = settings_of(east.cluster, west.cluster, store=store, topics=TOPIC, mirror={"disk_warn_percent": 0})
        mirror = MirrorProcess(folder, text, command=command)
        mirror.start()
        stack.callback(mirror.end)
        until(lambda: TOPIC in _topics(west.cluster), READY_S, "the twin is there")
        how = Writing(records_per_s=records_per_s / writers)
        sites = {name: client_settings(cluster) for name, cluster in clusters.items()}
        many: list[FollowingWriter | HotWriter] = [
            HotWriter(name, TOPIC, sites, how) if hot else FollowingWriter(name, TOPIC, clusters, "east", how)
            for name in (f"writer{number}" for number in range(writers))
        ]
        readers: list[FollowingReader | HotReader] = [
            HotReader(name, TOPIC, sites) if hot else FollowingReader(name, TOPIC, clusters, "east")
            for name in (f"readers{number}" for number in range(groups))
        ]
        for client in (*many, *readers):
            stack.enter_context(client)
        until(lambda: all(reader.read for reader in readers), READY_S, "the groups read")
        time.sleep(seconds / 2)
        since_s = time.monotonic()
        say("switching")
        words = ["switch", "run", TOPIC, "--to", "west", "--yes"]
        said = run_verb(words, mirror.settings, command=command, within_s=SWITCHED_S).strip().splitlines()[-1]
        time.sleep(seconds / 2)
        acked = [one for writer in many for one in writer.stop()]
        homes = [records_of(cluster, TOPIC, READY_S) for cluster in clusters.values()]
        wanted = {(partition, offset) for partition, offset, _, _ in homes[1]}
        until(
            lambda: all(len(reader.read) >= len(wanted) for reader in readers),
            CAUGHT_UP_S,
            "the groups catch up",
            must=False,
        )
        with open_store(f"sqlite:///{store}") as opened:
            (shown,) = switches(opened)
        return _outcome(acked, many, readers, homes, since_s, shown.record.held_s, said)


def _outcome(
    acked: list[Acked],
    writers: Sequence[FollowingWriter | HotWriter],
    readers: Sequence[FollowingReader | HotReader],
    homes: list[list[Record]],
    since_s: float,
    hold_s: float,
    said: str,
) -> Outcome:
    old, new = homes
    keys = Writing().keys
    there = Counter((key, told(value, keys)) for _, _, key, value in new)
    places = {(partition, offset) for partition, offset, _, _ in new}
    last: dict[bytes, int] = {}
    reordered = 0
    for _, _, key, value in sorted(new, key=lambda one: one[:2]):
        number = told(value, keys)
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


def records_of(cluster: Cluster, topic: str, within_s: float) -> list[Record]:
    """All that consumers of committed records see."""
    reading = {"group.id": "all", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({**client_settings(cluster), **reading})
    found: list[Record] = []
    try:
        parts = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in parts])
        left, until_s = len(parts), time.monotonic() + within_s
        while left and time.monotonic() < until_s:
            for message in consumer.consume(10_000, 1.0):
                if message.error():
                    left -= 1
                    continue
                place = message.partition() or 0, message.offset() or 0
                found.append((*place, bytes(message.key() or b""), bytes(message.value() or b"")))
    finally:
        consumer.close()
    return found


def _topics(cluster: Cluster) -> set[str]:
    consumer = Consumer({**client_settings(cluster), "group.id": "look"})
    try:
        return set(consumer.list_topics(timeout=10).topics)
    finally:
        consumer.close()


def until(holds: Callable[[], bool], within_s: float, what: str, *, must: bool = True) -> None:
    until_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > until_s:
            if must:
                raise LabError(f"not within {within_s:g} s: {what}")
            return
        time.sleep(0.1)
