"""What the monitor makes of a topic that it cannot see any more, on real brokers: hidden, without a twin, or over."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testkit.access import LabSecurity
from testkit.clients import add_acl, topic_id
from testkit.cluster import RigCluster
from testkit.errors import mentions
from testkit.raw_writer import RawWriter
from twinshore.config.model import Cluster, Link
from twinshore.kafka.admin import delete_acls
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType
from twinshore.lab.clients import create_admin_client
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST
from twinshore.monitoring.core.alerts import AlarmBook, AlarmEvent, AlarmKey, AlarmKind, AlertCondition, update_alarms
from twinshore.monitoring.core.monitored_link import MonitoredLink
from twinshore.monitoring.sampler import ExpectedNames, LinkSample, Sampler
from twinshore.state.core.values import TwinRow
from twinshore.state.store import open_store

pytestmark = pytest.mark.claim(
    "groups",
    "delay-sight",
    "a topic whose twin was deleted, or that the monitor may not describe any more, is an alarm until"
    " it is seen again or known to be over, and none of its alarms clears meanwhile; on two versions "
    "of Kafka",
)

LINK = Link("east", "west", topics=("seen-.*",))
LATE = AlarmKey(LINK.name, AlarmKind.END_OFFSET, "seen-orders")
BLIND = AlarmKey(LINK.name, AlarmKind.BLIND, "seen-orders")


@pytest.fixture(scope="module", params=[KAFKA_NEWEST, pytest.param(KAFKA_3, marks=pytest.mark.long)])
def guarded(request: pytest.FixtureRequest) -> Iterator[RigCluster]:
    flags = ("-XX:TieredStopAtLevel=1",)
    kind = LabSecurity.SASL_SCRAM_256
    with RigCluster(
        "west", security=kind, authorizer=True, users=("watch",), version=request.param, heap_mb=256, jvm_flags=flags
    ) as cluster:
        yield cluster


def delete(cluster: Cluster, topic: str) -> None:
    admin = create_admin_client(cluster)
    admin.delete_topics([topic])[topic].result(timeout=30)


class Eyes:
    """A sampler of two clusters, and the alarms that follow from what it sees by a clock of their own: a sample, then
    a minute. An alarm of a topic that is late stands from the beginning."""

    def __init__(self, source: Cluster, target: Cluster, folder: Path, stack: contextlib.ExitStack) -> None:
        store = stack.enter_context(open_store(f"sqlite:///{folder / 'store.db'}"))
        sides = [KafkaCluster(cluster, patience_s=10.0) for cluster in (source, target)]
        self.state, self.now_ms = MonitoredLink(LINK.name, 0), 0
        self.book: AlarmBook = update_alarms({}, [AlertCondition(LATE, True, "it is late")], 0, {})[0]
        self._sampler = Sampler(LINK, sides[0], sides[1], store, groups=False, expected=self._expected)
        stack.callback(self._sampler.close)

    def _expected(self) -> ExpectedNames:
        return ExpectedNames(self.state.topics | {key.topic for key in self.book})

    def look(self) -> LinkSample:
        sample = self._sampler.sample(lambda: self.now_ms, -1)
        assert "" not in sample.failures, sample.failures
        return sample

    def until(self, holds: Callable[[LinkSample], bool], what: str) -> LinkSample:
        deadline = time.monotonic() + 30
        while not holds(sample := self.look()):
            assert time.monotonic() < deadline, f"{what}: {sample}"
            time.sleep(0.2)
        return sample

    def minutes(self, count: int) -> list[AlarmEvent]:
        """What is told meanwhile, of topics."""
        events = []
        for _ in range(count):
            sample = self.look()
            self.now_ms += 60_000
            self.state.take(
                [one._replace(at_ms=self.now_ms) for one in sample.readings], sample.failures, self.now_ms, sample.over
            )
            conditions = self.state.conditions(self.now_ms, lambda _: 1e9, heartbeat_s=0.0, blind_s=30.0, period_s=1e6)
            over = [(key, self.state.explain_over(key, self.now_ms)) for key in self.book]
            conditions += [AlertCondition(key, False, why) for key, why in over if why]
            self.book, told = update_alarms(self.book, conditions, self.now_ms, {})
            events += [event for event in told if event.key.topic]
        return events


@pytest.mark.long
def test_out_of_sight_is_an_alarm_and_only_what_is_over_clears(
    east: RigCluster, guarded: RigCluster, tmp_path: Path
) -> None:
    acl = Acl(
        ResourceType.TOPIC,
        "seen-orders",
        PatternType.LITERAL,
        "User:watch",
        "*",
        AclOperation.DESCRIBE,
        AclPermission.ALLOW,
    )
    for side in (east, guarded):
        for topic in ("seen-orders", "seen-bills"):
            side.create_topic(topic)
    for topic in ("seen-orders", "seen-bills"):
        add_acl(guarded.cluster, "watch", "describe", "topic", topic)
    with contextlib.ExitStack() as stack:
        eyes = Eyes(east.cluster, guarded.cluster_as("watch"), tmp_path, stack)
        eyes.until(lambda sample: len(sample.readings) == 2, "both are seen")
        assert eyes.minutes(3) == []

        # The right to describe it is taken away: a list of all topics leaves it out without a word.
        delete_acls(stack.enter_context(contextlib.closing(KafkaCluster(guarded.cluster))), [acl])
        refused = "west refuses to describe seen-orders: the monitor's user needs Describe"
        eyes.until(lambda sample: refused in sample.failures.get("seen-orders", ""), "it is missed")
        (raised,) = eyes.minutes(5)
        assert (raised.happening, raised.key) == ("raised", BLIND)
        add_acl(guarded.cluster, "watch", "describe", "topic", "seen-orders")
        eyes.until(lambda sample: not sample.failures, "it is seen again")
        assert [(event.happening, event.key) for event in eyes.minutes(1)] == [("cleared", BLIND)]
        assert LATE in eyes.book

        # The twin is deleted, the source's topic is not.
        delete(guarded.cluster, "seen-orders")
        gone = "seen-orders is not on west any more"
        eyes.until(lambda sample: gone in sample.failures.get("seen-orders", ""), "it is missed")
        (raised,) = eyes.minutes(5)
        assert (raised.happening, raised.key) == ("raised", BLIND)
        assert LATE in eyes.book, "nothing says that it is well"

        # The source's is deleted too: now nobody expects it.
        delete(east.cluster, "seen-orders")
        eyes.until(lambda sample: "seen-orders" in sample.over, "it is over")
        cleared = eyes.minutes(4)
        assert {(event.happening, event.key) for event in cleared} == {("cleared", LATE), ("cleared", BLIND)}
        assert all(mentions(event.sentence, "seen-orders", "deleted", "east") for event in cleared)
        assert "well again" not in str(cleared)
    delete(east.cluster, "seen-bills")


@pytest.mark.claim(
    "groups",
    "delay-lost-ends",
    "a twin that lost its end, or was made anew, while no monitor ran has an alarm once its bound is over",
)
@pytest.mark.parametrize("left", [0, 50])
def test_what_a_twin_lost_while_no_monitor_ran_is_an_alarm_soon(
    east: RigCluster, west: RigCluster, tmp_path: Path, left: int
) -> None:
    topic = f"lost-{left}"
    link = Link("east", "west", topics=(topic,))
    late = AlarmKey(link.name, AlarmKind.RECOVERY_POINT, topic)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store(f"sqlite:///{tmp_path / 'store.db'}"))
        sides = [KafkaCluster(side.cluster, patience_s=10.0) for side in (east, west)]
        for side, lab in zip(sides, (east, west), strict=True):
            lab.create_topic(topic)
            assert RawWriter(side, topic).send([RawWriter.batch(100)]).error == 0
        ids = [topic_id(side.cluster, topic).hex() for side in (east, west)]
        store.twins.save([TwinRow(link.name, topic, 0, ids[0], ids[1], 0, 0, 1)])
        sampler = Sampler(link, sides[0], sides[1], store, groups=False)
        stack.callback(sampler.close)
        state = MonitoredLink(link.name, 0)

        def alarms(at_ms: int) -> list[AlarmKey]:
            sample = sampler.sample(lambda: at_ms, -1)
            state.take(sample.readings, sample.failures, at_ms, sample.over)
            conditions = state.conditions(at_ms, lambda _: 10.0, heartbeat_s=0.0, blind_s=30.0, period_s=1e6)
            return [sign.key for sign in conditions if sign.wrong]

        deadline = time.monotonic() + 60
        while not state.lags or any(view.lag_records or view.source_end != 100 for view in state.lags.values()):
            assert alarms(1_000) == [] and time.monotonic() < deadline, state.lags
            time.sleep(0.2)
        rows = state.rows()
        delete(west.cluster, topic)
        deadline = time.monotonic() + 60
        while topic in sides[1].metadata(None, refresh=True).topics:
            assert time.monotonic() < deadline, "the twin is there still"
            time.sleep(0.2)
        west.create_topic(topic)
        if left:
            assert RawWriter(sides[1], topic).send([RawWriter.batch(left)]).error == 0
        state = MonitoredLink(link.name, 60_000)
        state.restore(rows)
        deadline = time.monotonic() + 60
        while not any(view.lag_records for view in state.lags.values()) or state.failures:
            alarms(61_000)
            assert time.monotonic() < deadline, (state.lags, state.failures)
            time.sleep(0.2)
        assert late in alarms(80_000), state.lags


@pytest.mark.claim(
    "groups",
    "delay-deleted",
    "what never crossed of a topic that was deleted is an alarm, until there is such a topic again",
)
def test_what_never_crossed_of_a_deleted_topic_is_an_alarm(east: RigCluster, west: RigCluster, tmp_path: Path) -> None:
    link = Link("east", "west", topics=("doomed-.*",))
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store(f"sqlite:///{tmp_path / 'store.db'}"))
        sides = [KafkaCluster(side.cluster, patience_s=10.0) for side in (east, west)]
        for topic, crossed in (("doomed-late", 40), ("doomed-well", 100)):
            ids = []
            for side, lab, count in zip(sides, (east, west), (100, crossed), strict=True):
                lab.create_topic(topic)
                assert RawWriter(side, topic).send([RawWriter.batch(count)]).error == 0
                ids.append(topic_id(lab.cluster, topic).hex())
            store.twins.save([TwinRow(link.name, topic, 0, ids[0], ids[1], 0, 0, 1)])
        state = MonitoredLink(link.name, 0)
        sampler = Sampler(link, sides[0], sides[1], store, groups=False, expected=lambda: ExpectedNames(state.topics))
        stack.callback(sampler.close)

        def until(holds: Callable[[LinkSample], bool], at_ms: int) -> None:
            deadline = time.monotonic() + 60
            while not holds(sample := sampler.sample(lambda: at_ms, -1)):
                assert time.monotonic() < deadline, sample
                time.sleep(0.2)
            state.take(sample.readings, sample.failures, at_ms, sample.over, sample.deleted)

        def alarms(at_ms: int) -> dict[str, str]:
            conditions = state.conditions(at_ms, lambda _: 1e9, heartbeat_s=0.0, blind_s=1e9, period_s=1e6)
            return {f"{sign.key.kind} {sign.key.topic}": sign.sentence for sign in conditions if sign.wrong}

        until(lambda sample: sorted(one.target_end for one in sample.readings) == [40, 100], 1_000)
        assert alarms(1_000) == {}
        for topic in ("doomed-late", "doomed-well"):
            delete(east.cluster, topic)
        until(lambda sample: len(sample.deleted) == 2, 2_000)
        until(lambda sample: len(sample.deleted) == 2, 9_000)
        (said,) = alarms(9_000).items()
        assert said[0] == "recovery point doomed-late"
        assert mentions(said[1], "doomed-late", "deleted", "east", "60 records")
        east.create_topic("doomed-late")
        until(lambda sample: len(sample.readings) == 1 and len(sample.deleted) == 1, 60_000)
        assert "recovery point doomed-late" not in alarms(60_000)
    for lab, topic in ((east, "doomed-late"), (west, "doomed-late"), (west, "doomed-well")):
        delete(lab.cluster, topic)
