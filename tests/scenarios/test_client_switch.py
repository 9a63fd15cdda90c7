"""An application that nobody restarts: its producers and consumers go with their topic to another cluster, and back."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message

from testkit.switch_under_load import records_of
from tests.scenarios.mirror_rig import until
from tests.scenarios.switch_rig import SwitchRig, carried
from twinshore.client import FailoverConsumer, FailoverProducer
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "client-orders"
KEYS = 20


class Application:
    """Writes numbers of its keys, and reads them in a group."""

    def __init__(self, name: str, clusters: dict[str, dict[str, object]], topic: str) -> None:
        self.acked: list[tuple[bytes, int]] = []
        self.errors: list[str] = []
        self.read: list[tuple[int, int]] = []
        self.moves: list[tuple[str, str, str]] = []
        self._name, self._topic = name, topic
        self._stopping = threading.Event()
        self.producer = FailoverProducer({"linger.ms": 5}, clusters=clusters, topics=[topic], name=name)
        self.consumer = FailoverConsumer(
            {"group.id": f"{name}-readers", "auto.offset.reset": "earliest"},
            clusters=clusters,
            name=f"{name}-reader",
            before_move=lambda *words: self.moves.append(words),
            after_move=lambda *words: self.moves.append(words),
        )
        self._threads = [threading.Thread(target=self._write), threading.Thread(target=self._consume)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stopping.is_set():
            key = b"%s-%d" % (self._name.encode(), number % KEYS)
            self.producer.produce(self._topic, b"%d" % number, key, on_delivery=self._told)
            self.producer.poll(0)
            number += 1
            time.sleep(0.002)
        if left := self.producer.close(60):
            self.errors.append(f"{left} without an answer")

    def _told(self, error: KafkaError | None, message: Message | None) -> None:
        if error is not None:
            self.errors.append(error.str())
        elif message is not None:
            self.acked.append((bytes(message.key() or b""), int(message.value() or b"0")))

    def _consume(self) -> None:
        self.consumer.subscribe([self._topic])
        while not self._stopping.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and message.error():
                self.errors.append(str(message.error()))
            elif message is not None:
                self.read.append((message.partition() or 0, message.offset() or 0))

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(90)
        self.consumer.close()


@pytest.fixture(scope="module")
def rig(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchRig]:
    with carried(east, west, TOPIC, tmp_path_factory.mktemp("client")) as made:
        yield made


def settings(lab: LabCluster) -> dict[str, object]:
    return dict(client_settings(lab.cluster))


@pytest.mark.claim(
    "client",
    "there-and-back",
    "an application goes along and back: each acknowledged record is there once, in order; nothing is read again",
)
@pytest.mark.long
def test_an_application_goes_along_and_comes_back(rig: SwitchRig) -> None:
    clusters = {"east": settings(rig.east), "west": settings(rig.west)}
    ours = Application("shop", clusters, TOPIC)
    try:
        for home in ("west", "east"):
            acked = len(ours.acked)
            until(lambda acked=acked: len(ours.acked) > acked + 100, 60, "it writes", rig.rig)  # type: ignore[misc]
            until(lambda: bool(ours.read), 60, "it reads", rig.rig)
            said = rig.move(home)
            print("told:", said.last)
            assert said.code == 0, said.text
            assert ours.producer.where(TOPIC) == home
        acked = len(ours.acked)
        until(lambda: len(ours.acked) > acked + 100, 60, "it writes on", rig.rig)
    finally:
        ours.stop()
    assert not ours.errors
    rig.same()
    found = everything(rig)
    mine = [(key, int(value)) for _, _, key, value in found if key.startswith(b"shop-")]
    assert Counter(mine) == Counter(ours.acked), "each acknowledged record once"
    for key in {key for key, _ in mine}:
        numbers = [number for one, number in mine if one == key]
        assert numbers == sorted(numbers), f"{key!r} in order"
    assert len(ours.read) == len(set(ours.read)), "nothing is read again"
    assert set(ours.read) <= {(partition, offset) for partition, offset, _, _ in found}
    for partition in range(rig.partitions):
        seen = sorted(offset for number, offset in ours.read if number == partition)
        there = [offset for number, offset, _, _ in found if number == partition and seen and offset <= seen[-1]]
        assert seen == there, "nothing is left out"
    assert ours.moves == [(TOPIC, "east", ""), (TOPIC, "east", "west"), (TOPIC, "west", ""), (TOPIC, "west", "east")]


def test_the_page_s_examples_run(east: LabCluster, west: LabCluster, capfd: pytest.CaptureFixture[str]) -> None:
    """As they stand, but for the addresses."""
    text = (ROOT / "docs" / "client.md").read_text()
    plain, awaited, pushed, _logging = re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    compile(pushed, "docs/client.md", "exec")  # its centre is an address of somebody's own
    read = "\n".join("    " + line for line in ("while message is None:", "    message = consumer.poll(1.0)"))
    for name, example in (("page", plain + f"{read}\nprint('read', message.value())\n"), ("awaited", awaited)):
        for lab in (east, west):
            where = ",".join(f"{lab.name}-{number}:9092" for number in (1, 2))
            assert where in example
            example = example.replace(where, lab.cluster.bootstrap[0])
            lab.create_topic(f"{name}-orders")
        example = example.replace('"orders"', f'"{name}-orders"').replace('"billing"', f'"{name}-billing"')
        exec(compile(example, "docs/client.md", "exec"), {})  # noqa: S102 - the page is ours
        said = capfd.readouterr().out
        assert re.match(r"None <[\w.]*Message object" if name == "page" else "written at 0\n", said), said
        assert said.endswith("b'a value'\n"), said


def everything(rig: SwitchRig) -> list[tuple[int, int, bytes, bytes]]:
    return sorted(records_of(rig.east.cluster, TOPIC))
