"""What a leader answers of a partition's end, asked many times a second."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from testkit.clients import topic_id
from tests.scenarios.test_mirror_basic import fill
from twinshore.config.frozen import PROXY_CLIENT_ID
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.protection.core.model import SideView
from twinshore.protection.watermarks import IDLE_SPACING_S, SPACING_S, Views, WatermarkQueries

WITHIN_S = 30.0


class Heard:
    """What is heard, and what is asked: partitions at the short spacing, and others twice a second."""

    def __init__(self) -> None:
        self.views: list[tuple[TopicPartition, SideView]] = []
        self.asked: list[TopicPartition] = []
        self.seldom: list[TopicPartition] = []
        self._more = threading.Condition()

    def __call__(self, views: Views, with_ids: bool) -> None:
        assert with_ids
        with self._more:
            self.views += views.items()
            self._more.notify_all()

    def until(self, fits: Callable[[SideView], bool], within_s: float = WITHIN_S) -> SideView:
        deadline_s = time.monotonic() + within_s
        with self._more:
            while not (found := [view for _, view in self.views if fits(view)]):
                assert self._more.wait(deadline_s - time.monotonic()), self.views[-3:]
        return found[0]


@contextmanager
def asking(lab: LabCluster) -> Iterator[Heard]:
    kafka, heard, loop = KafkaCluster(lab.cluster), Heard(), asyncio.new_event_loop()
    queries = WatermarkQueries(kafka, PROXY_CLIENT_ID, loop, heard)

    def poll() -> None:
        queries.ask(heard.asked, with_ids=True)
        queries.tick()
        loop.call_later(SPACING_S, poll)

    def poll_seldom() -> None:
        queries.ask(heard.seldom, with_ids=True)
        loop.call_later(IDLE_SPACING_S, poll_seldom)

    loop.call_soon(poll)
    loop.call_soon(poll_seldom)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield heard
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        queries.close()
        loop.close()
        kafka.close()


def test_the_end_is_heard_soon_after_it_moves_with_id_and_epoch(east: LabCluster) -> None:
    east.create_topic("marks-orders", partitions=2)
    partition = TopicPartition("marks-orders", 1)
    with asking(east) as heard:
        heard.asked = [partition]
        first = heard.until(lambda _: True)
        assert (first.topic_id, first.epoch, first.watermark) == (topic_id(east.cluster, "marks-orders").hex(), 0, 0)
        fill(east, "marks-orders", 20, partition=1)
        moved = heard.until(lambda view: view.watermark == 20)
        assert first.asked_s <= first.heard_s and first.asked_s < moved.asked_s <= moved.heard_s
        heard.views.clear()
        time.sleep(0.5)
        assert len(heard.views) > 20, "it is asked many times a second, and answers are not waited for"


def test_a_topic_that_is_asked_seldom_is_not_hidden_by_one_that_is_asked_often(east: LabCluster) -> None:
    east.create_topic("marks-often")
    east.create_topic("marks-seldom")
    with asking(east) as heard:
        heard.asked = [TopicPartition("marks-often", 0)]
        heard.until(lambda _: True)
        heard.seldom = [TopicPartition("marks-seldom", 0)]
        seldom_id = topic_id(east.cluster, "marks-seldom").hex()
        heard.until(lambda view: view.topic_id == seldom_id, within_s=10.0)


def test_a_topic_that_is_made_again_has_another_id_at_once(east: LabCluster) -> None:
    east.create_topic("marks-again")
    fill(east, "marks-again", 9)
    partition = TopicPartition("marks-again", 0)
    with asking(east) as heard:
        heard.asked = [partition]
        before = heard.until(lambda view: view.watermark == 9)
        admin = create_admin_client(east.cluster)
        admin.delete_topics(["marks-again"])["marks-again"].result()
        time.sleep(1)
        east.create_topic("marks-again")
        fill(east, "marks-again", 3)
        heard.until(lambda view: view.watermark == 3)
        ends = {(view.topic_id == before.topic_id, view.watermark) for _, view in heard.views}
        assert (True, 3) not in ends, "offsets of the new topic never come under the old one's id"


def test_leaders_are_found_again_after_a_broker_was_away(east: LabCluster) -> None:
    east.create_topic("marks-away")
    partition = TopicPartition("marks-away", 0)
    with asking(east) as heard:
        heard.asked = [partition]
        heard.until(lambda _: True)
        east.brokers[0].kill()
        heard.views.clear()
        east.brokers[0].launch()
        east.brokers[0].wait_ready()
        heard.until(lambda _: True)
