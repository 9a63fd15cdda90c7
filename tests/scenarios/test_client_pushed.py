"""Clients whose settings a configuration centre pushes: they go to another cluster, and nobody restarts them."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message

from tests.client.test_clients import settings
from tests.scenarios.mirror_rig import spans
from twinshore.client import HotConsumer, HotProducer
from twinshore.client.centres.pushes import Pushes
from twinshore.client.centres.sources import PushFile
from twinshore.lab import LabCluster


def push(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def until(what: str, holds: object) -> None:
    until_s = time.monotonic() + 60
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < until_s, what
        time.sleep(0.05)


@pytest.mark.parametrize("spooled", [False, True])
def test_clients_go_where_they_are_pushed_without_a_restart(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path, spooled: bool
) -> None:
    """No link carries the topic, so no cluster says where it is at home: the push does."""
    for lab in (east, west):
        lab.create_topic(unique_topic, partitions=2)
    writes, reads = tmp_path / "writes.json", tmp_path / "reads.json"

    def at(home: str, **more: object) -> str:
        clusters = {"east": settings(east), "west": settings(west)}
        return json.dumps({"clusters": clusters, "home": home, **more})

    for path in (writes, reads):
        path.write_text(at("east"))
    answers: dict[int, str] = {}
    errors: list[KafkaError] = []
    warned: list[str] = []
    stop = threading.Event()
    spool = tmp_path / "spool" if spooled else None
    pushes = [Pushes(PushFile(path), last_good=path.with_suffix(".last")) for path in (writes, reads)]
    with HotProducer({}, clusters=pushes[0], topics=[unique_topic], spool=spool, warn=warned.append) as producer:

        def answered(error: KafkaError | None, message: Message | None) -> None:
            if error is not None or message is None:
                errors.append(error or KafkaError(KafkaError._FAIL))
            else:
                answers[int(message.value() or b"-1")] = producer.where(unique_topic)

        def write() -> None:
            number = 0
            while not stop.is_set():
                producer.produce(unique_topic, b"%d" % number, b"key %d" % (number % 7), on_delivery=answered)
                producer.poll(0)
                number += 1
                time.sleep(0.002)

        writer = threading.Thread(target=write)
        writer.start()
        found: dict[bytes, list[int]] = {}
        config = {"group.id": f"{unique_topic}-readers", "auto.offset.reset": "earliest"}
        with HotConsumer(config, clusters=pushes[1], warn=warned.append) as consumer:

            def read(count: int = 1) -> bool:
                for message in consumer.consume(500, 0.1):
                    assert message.error() is None
                    found.setdefault(bytes(message.key() or b""), []).append(int(message.value() or b"-1"))
                return sum(map(len, found.values())) >= count

            consumer.subscribe([unique_topic])
            until("read on east", read)
            push(writes, '{"clusters": {')
            until("half a push is told", lambda: any("this push is not taken" in one for one in warned))
            assert producer.where(unique_topic) == consumer.where(unique_topic) == "east"

            push(writes, at("west", settings={"linger.ms": 1}))
            until("written on west", lambda: producer.where(unique_topic) == "west" and "west" in answers.values())
            time.sleep(0.5)
            stop.set()
            writer.join(30)
            assert producer.flush(60) == 0
            assert not errors
            assert len(answers) == max(answers) + 1, "each call was answered"
            ends = [sum(end for _, end in spans(lab.cluster, unique_topic, 2)) for lab in (east, west)]
            assert sum(ends) == len(answers)
            until("all of east is read", lambda: read(ends[0]))
            push(reads, at("west"))
            until("all of west is read", lambda: read(len(answers)))
            assert consumer.where(unique_topic) == "west"
    for key, numbers in found.items():
        assert numbers == sorted(set(numbers)), f"{key!r} out of order, or twice"
    assert sum(map(len, found.values())) == len(answers)
    assert len([one for one in warned if "this push" in one]) == 1, warned
