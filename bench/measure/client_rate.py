"""`python -m bench.measure.client_rate`: what following costs a producer, and what a spool does that is idle.

Records a second of a FailoverProducer with and without one, beside a Producer of confluent-kafka alone, by turns on
one real broker. Besides: how many calls a second are kept on the disk by one thread and by eight, and how many are
sent again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from testkit.figures import StageError, median
from twinshore.client import FailoverProducer
from twinshore.client.producer_routing import DEFAULT_SETTINGS
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

VALUE = b"x" * 200
KEYS = [b"key %d" % number for number in range(100)]
NOWHERE = {"away": {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}}


def rate(
    produce: Callable[..., Any], poll: Callable[[float], Any], flush: Callable[[float], int], records: int
) -> float:
    """Records a second, from the first call to the last answer."""
    begun_s = time.monotonic()
    for number in range(records):
        while True:
            try:
                produce("rates", VALUE, KEYS[number % len(KEYS)])
                break
            except BufferError:
                poll(0.01)
        if not number % 100:
            poll(0)
    if left := flush(120):
        raise StageError(f"{left} records have no answer")
    return records / (time.monotonic() - begun_s)


def alone(settings: dict[str, Any], records: int) -> float:
    producer = Producer({**DEFAULT_SETTINGS, **settings})
    producer.list_topics("rates", timeout=10)
    return rate(producer.produce, producer.poll, producer.flush, records)


def following(settings: dict[str, Any], records: int, spool: Path | None) -> float:
    with FailoverProducer({}, clusters={"east": settings}, topics=["rates"], spool=spool) as producer:
        producer.produce("rates", VALUE)
        producer.flush(60)
        time.sleep(0.1)
        return rate(producer.produce, producer.poll, producer.flush, records)


def kept_rate(folder: Path, threads: int, seconds: float) -> float:
    """Calls a second that are on the disk when they return."""
    counts = [0] * threads
    with FailoverProducer({}, clusters=NOWHERE, topics=["rates"], spool=folder) as producer:
        until_s = time.monotonic() + seconds

        def keeps(own: int) -> None:
            while time.monotonic() < until_s:
                producer.produce("rates", VALUE, KEYS[own])
                counts[own] += 1

        running = [threading.Thread(target=keeps, args=(own,)) for own in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        producer.close(0)
    return sum(counts) / seconds


def idle_ratio(records: int, turns: int, say: Callable[[str], None]) -> float:
    """Records a second with a spool that is idle, as a part of confluent-kafka's alone: the median of turns."""
    ratios = []
    with tempfile.TemporaryDirectory(prefix="twinshore-rate-") as scratch, LabCluster("east") as east:
        east.create_topic("rates", partitions=4)
        settings = dict(client_settings(east.cluster))
        alone(settings, records)  # the broker's JVM is warm from then on
        for turn in range(turns):
            base, idle = alone(settings, records), following(settings, records, Path(scratch, f"idle-{turn}"))
            ratios.append(idle / base)
            say(f"{idle:,.0f} records/s with a spool that is idle, {base:,.0f} alone")
    return median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.measure.client_rate")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    found: dict[str, list[float]] = {"alone": [], "following": [], "with a spool": []}
    with tempfile.TemporaryDirectory(prefix="twinshore-rate-") as scratch, LabCluster("east") as east:
        east.create_topic("rates", partitions=4)
        settings = dict(client_settings(east.cluster))
        alone(settings, asked.records)  # the broker's JVM is warm from then on
        for turn in range(asked.turns):
            found["alone"].append(alone(settings, asked.records))
            found["following"].append(following(settings, asked.records, None))
            found["with a spool"].append(following(settings, asked.records, Path(scratch, f"idle-{turn}")))
            print({name: round(rates[-1]) for name, rates in found.items()}, flush=True)
        kept = {threads: kept_rate(Path(scratch, f"kept-{threads}"), threads, 3.0) for threads in (1, 8)}
        begun_s = time.monotonic()
        with FailoverProducer(
            {}, clusters={"east": settings}, topics=["rates"], spool=Path(scratch, "kept-8")
        ) as producer:
            count = len(producer)
            producer.flush(120)
            sent = count / (time.monotonic() - begun_s)
    base = median(found["alone"])
    line = {
        "alone_per_s": round(base),
        "following_ratio": round(median(found["following"]) / base, 2),
        "spool_idle_ratio": round(median(found["with a spool"]) / base, 2),
        "spool_idle_of_following": round(median(found["with a spool"]) / median(found["following"]), 2),
        "kept_per_s_1_thread": round(kept[1]),
        "kept_per_s_8_threads": round(kept[8]),
        "sent_again_per_s": round(sent),
        "turns": asked.turns,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
