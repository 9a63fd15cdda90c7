"""A group that reads, writes and commits in transactions: its place on the target never passes what it has written."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from testkit.log_kinds import seen
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.test_groups import committed
from tests.scenarios.test_mirror_basic import fill
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

pytestmark = pytest.mark.claim(
    "groups",
    "kept-together",
    "with `outputs`, the place of a group that reads, writes and commits in transactions never passes"
    " on the target what it wrote: not while the outputs' twin stands still, nor while it catches up;"
    " `groups` says that it waits",
)

LINK = "east->west"
GROUP = "billing"
PORTION = 5
FOLLOWS_S = 90.0


class Application:
    """Writes one invoice for each order, and commits its place in the same transaction."""

    def __init__(self, lab: LabCluster, orders: str, invoices: str) -> None:
        self._orders, self._invoices = orders, invoices
        self._consumer = Consumer({**client_settings(lab.cluster), "group.id": GROUP})
        self._producer = Producer({**client_settings(lab.cluster), "transactional.id": f"app-{orders}"})
        self._producer.init_transactions(60)
        self.place = 0

    def process(self, records: int) -> None:
        for _ in range(records // PORTION):
            self._producer.begin_transaction()
            for _ in range(PORTION):
                self._producer.produce(self._invoices, b"%d" % self.place, partition=0)
                self.place += 1
            reached = [TopicPartition(self._orders, 0, self.place)]
            self._producer.send_offsets_to_transaction(reached, self._consumer.consumer_group_metadata(), 60)
            self._producer.commit_transaction(60)

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def running(folder: Path, east: LabCluster, west: LabCluster, prefix: str) -> Iterator[Rig]:
    text = settings_text(folder, [east.cluster, west.cluster], {LINK: f"{prefix}-.*"}, mirror={"refresh_s": 0.5})
    rules = f"every_s = 0.3\noutputs = {{ '{GROUP}' = ['{prefix}-invoices'] }}\n"
    rig = Rig(folder, text.replace("[mirror]", f'[links."{LINK}".groups]\n{rules}[mirror]', 1))
    rig.process.start()
    try:
        yield rig
    finally:
        rig.process.end()


@pytest.mark.long
def test_a_groups_place_never_passes_what_its_readers_wrote(
    tmp_path: Path, east: LabCluster, west: LabCluster, unique_topic: str
) -> None:
    orders, invoices = f"{unique_topic}-orders", f"{unique_topic}-invoices"
    for topic in (orders, invoices):
        east.create_topic(topic)
    fill(east, orders, 400)
    application = Application(east, orders, invoices)

    def at() -> int:
        return committed(west, GROUP, orders)

    def made() -> int:
        return len(seen(west, invoices, 0, committed=True))

    with running(tmp_path, east, west, unique_topic) as rig:
        until(lambda: spans(west.cluster, orders, 1) == [(0, 400)], FOLLOWS_S, "orders on west", rig)
        application.process(20)
        until(lambda: at() == 20, FOLLOWS_S, "the group at 20 on west", rig)
        assert made() == 20

        # Its outputs stand still: its place would let a failover leave out what was never made on the target.
        rig.verb("link", "pause", LINK, "--topic", invoices)
        rig.until_said(f"topic {invoices} is paused")
        application.process(100)
        until(lambda: '"state": "waits"' in rig.verb("groups", "--group", GROUP, "--json"), 30, "it waits", rig)
        time.sleep(3.0)
        (view,) = json.loads(rig.verb("groups", "--group", GROUP, "--json", "--partitions"))["groups"]
        place = at()
        assert (view["state"], place <= made() < 120) == ("waits", True), f"at {place}: {view}"

        # They go on, and so does the application: at no moment is the place ahead.
        rig.verb("link", "resume", LINK, "--topic", invoices)
        busy = threading.Thread(target=application.process, args=(280,))
        busy.start()
        deadline = time.monotonic() + FOLLOWS_S
        looks: list[tuple[int, int]] = []
        while not looks or looks[-1][0] < 400:
            assert time.monotonic() < deadline, f"place and invoices on west: {looks[-5:]}\n{rig.process.said[-2000:]}"
            place = at()
            looks.append((place, made()))
            assert looks[-1][0] <= looks[-1][1], f"place and invoices on west: {looks[-5:]}"
        busy.join()
    application.close()
    assert made() == 400
