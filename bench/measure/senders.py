"""`python -m bench.measure.senders [--records N]`: where a line bounds each connection, do several tasks carry more?

A broadcast of two targets, the second behind a line of 5 MB/s for each connection: the same records go there by one
task, and by four. Of the records that four tasks carried, each key's order is looked at on the target. The last line is
flat JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.measure.broadcast import ARRIVE_S_MAX, Place, stage
from testkit.cluster import RigCluster
from testkit.figures import StageError
from testkit.loader import PARTITIONS, plain
from testkit.watermarks import TopicEndReader
from twinshore.lab.clients import client_settings

LINE_BYTES_S = 5_000_000.0
TASKS = 4
RECORDS, RECORDS_LONG = 150_000, 400_000
IN_ORDER, IN_ORDER_LONG = 400_000, 10_000_000
KEYS = 1_000
FILLER = bytes(60)
# What had arrived while the source was written to, and what comes last, when tasks end, says less of the line.
FROM_PART, TO_PART = 0.15, 0.9
SILENT_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Senders:
    """MB/s over the line by one task and by several; `misplaced` of `ordered` records did not follow their key's one
    before."""

    one_mb_s: float
    several_mb_s: float
    ordered: int
    misplaced: int

    @property
    def times(self) -> float:
        return self.several_mb_s / self.one_mb_s

    def __str__(self) -> str:
        return (
            f"over {LINE_BYTES_S / 1e6:g} MB/s for each connection one task carries {self.one_mb_s:.2f} MB/s, {TASKS}"
            f" tasks {self.several_mb_s:.2f}, {self.times:.2f} times as much; of {self.ordered:,} records with"
            f" {KEYS:,} keys {self.misplaced} did not follow their key's one before"
        )


def run_senders(records: int, in_order: int) -> Senders:
    """On clusters of its own."""
    with stage(2, plain(), far=1) as place:
        far = place.targets[-1]
        far.proxy(0).set_bandwidth(LINE_BYTES_S, for_each=True)
        with place.mirror(2, together=True) as (process, topic):
            one = _rate(place, topic, records)
            process.check()
        with place.mirror(2, together=True, tasks=TASKS) as (process, topic):
            several = _rate(place, topic, records)
            process.check()
            keyed = f"{topic}-keyed"
            place.source.create_topic(keyed, partitions=PARTITIONS)
            TopicEndReader(place.source.cluster, keyed, PARTITIONS).wait_ready()
            _produce(place.source, keyed, in_order)
            place.until(process, keyed, 2, in_order, ARRIVE_S_MAX + 2 * in_order / RECORDS)
            misplaced = _misplaced(far, keyed, in_order)
    return Senders(one, several, in_order, misplaced)


def _rate(place: Place, topic: str, records: int) -> float:
    """MB/s at which so many records, written at once, reach the far target; its first and last are left out."""
    end = TopicEndReader(place.targets[-1].cluster, topic, PARTITIONS)
    first = end.records()
    written = place.write(topic, records, 0.0)
    seen = list(_seen(end, first, written))
    if len(seen) < 2:
        raise StageError(f"{written} records are too few for a rate: all had arrived at once")
    (begun_s, begun), (ended_s, ended) = seen[0], seen[-1]
    return (ended - begun) * place.workload.bytes_per_record / (ended_s - begun_s) / 1e6


def _seen(end: TopicEndReader, first: int, records: int) -> Iterator[tuple[float, int]]:
    """When how many had arrived, between these parts of them."""
    deadline_s = time.monotonic() + ARRIVE_S_MAX
    found = 0
    while found < records * TO_PART:
        found, now_s = end.records() - first, time.monotonic()
        if found >= records * FROM_PART:
            yield now_s, found
        if now_s > deadline_s:
            raise StageError(f"{found} of {records} records within {ARRIVE_S_MAX:g} s")
        time.sleep(0.05)


def _produce(source: RigCluster, topic: str, records: int) -> None:
    """Each key's records are numbered; which partition a key is in, the producer says."""
    producer = Producer({**client_settings(source.cluster), "enable.idempotence": True, "linger.ms": 20})
    for number in range(records):
        turn, key = divmod(number, KEYS)
        while True:
            try:
                producer.produce(topic, turn.to_bytes(8, "big") + FILLER, key.to_bytes(4, "big"))
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(ARRIVE_S_MAX):
        raise StageError(f"{left} records were not acknowledged")


def _misplaced(target: RigCluster, topic: str, records: int) -> int:
    """How many of the records on the target are not the next of their key; what is missing counts."""
    consumer = Consumer({**client_settings(target.cluster), "group.id": "bench-order", "enable.auto.commit": False})
    expected, misplaced, read, heard_s = [0] * KEYS, 0, 0, time.monotonic()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        while read < records and time.monotonic() - heard_s < SILENT_S_MAX:
            for message in consumer.consume(20_000, timeout=0.5):
                if message.error():
                    raise KafkaException(message.error())
                key, turn = (
                    int.from_bytes(message.key() or b"", "big"),
                    int.from_bytes((message.value() or b"")[:8], "big"),
                )
                misplaced += turn != expected[key]
                expected[key], read, heard_s = turn + 1, read + 1, time.monotonic()
    finally:
        consumer.close()
    return misplaced + records - read


def main() -> int:
    """Measures, and says so."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure.senders", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--in-order", type=int, default=IN_ORDER)
    asked = parser.parse_args()
    found = run_senders(asked.records, asked.in_order)
    print(found, file=sys.stderr, flush=True)
    flat = {"one_mb_s": round(found.one_mb_s, 2), "several_mb_s": round(found.several_mb_s, 2)}
    print(json.dumps({"bench": "senders", **flat, "ordered": found.ordered, "misplaced": found.misplaced}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
