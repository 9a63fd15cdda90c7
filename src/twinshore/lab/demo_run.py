"""The demo: two clusters stay identical while a worker is killed; a topic moves under load; a cluster is lost, clients
continue on the other, and the lost one returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from twinshore.config.model import TopicPartition
from twinshore.config.sentences import Tell
from twinshore.lab.clients import LogEndReader
from twinshore.lab.demo_clients import (
    GROUP,
    UNREPLICATED_RECORDS,
    DemoAccount,
    DemoRescuedRecords,
    DemoWriters,
    GroupReader,
    PausedWorkers,
    TwinTail,
    read_demo_group_offsets,
    read_group_to_ends,
    run_verb,
)
from twinshore.lab.demo_stage import DemoStage
from twinshore.lab.processes import LabError, log_tail
from twinshore.lab.topic_comparison import compare_topic

COMPRESSIONS = ("lz4", "zstd", "gzip")
PROGRESS_INTERVAL_S = 1.0
FIRST_RECORD_TIMEOUT_S = 180.0
# A partition silent for so long means that its task has stopped; records come many times a second.
STALLED_PARTITION_S = 1.0
RECOVERY_TIMEOUT_S = 180.0
CATCH_UP_TIMEOUT_S = 300.0
SLOW_DOWN_AFTER_S = 15.0
RECORDS_PER_S_MIN = 100.0
GROUP_TIMEOUT_S = 90.0
WAIT_NOTICE_INTERVAL_S = 5.0
STALLED_S_MAX = 60.0
MOVED_TOPIC = "payments"
SWITCH_TIMEOUT_S = 120.0
NEW_HOME_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """`carry_s`: seconds of replication before the kill, and again after."""

    topics: Mapping[str, int] = field(default_factory=lambda: {"orders": 4, "payments": 4, "clicks": 4})
    records_per_s: float = 6_000.0
    carry_s: float = 12.0
    keep: bool = False


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """`difference`: empty if both sides are identical at the end."""

    records: int
    partitions: int
    gap_s: float
    difference: str = ""


def run_demo(plan: DemoPlan, say: Tell) -> DemoOutcome:
    """Runs the demo; `say` gets sentences and lines of figures. Leaves nothing behind unless `plan.keep`."""
    stage = DemoStage(keep=plan.keep)
    kept = False
    try:
        outcome = _Play(plan, stage, say).run()
        if plan.keep:
            for line in stage.leave_running():
                say(line)
            kept = True
        return outcome
    except Exception:
        if stage.mirror is not None:
            say(f"the end of the mirror's log:\n{log_tail(stage.mirror.log)}")
        if stage.proxy is not None:
            say(f"the end of the proxy's log:\n{log_tail(stage.proxy.log)}")
        raise
    finally:
        if not kept:
            say("ending both clusters and the mirror")
            stage.close()


class _Play:
    """One run. Each act announces what happens and what to watch."""

    def __init__(self, plan: DemoPlan, stage: DemoStage, say: Tell) -> None:
        self._plan, self._stage = plan, stage
        self._tell = say
        self._started_s = time.monotonic()
        self._line_at_s = 0.0
        self._before = (0.0, 0, 0)
        self._tail: TwinTail | None = None
        self._reader: GroupReader | None = None
        self._writers: DemoWriters | None = None
        self._stood: dict[TopicPartition, int] = {}
        self._acknowledged = 0

    def run(self) -> DemoOutcome:
        self._say("starting two real Kafka clusters on this machine, east and west, one broker each")
        self._stage.start_clusters()
        self._source = LogEndReader(self._stage.east.cluster, self._plan.topics)
        self._target = LogEndReader(self._stage.west.cluster, self._plan.topics)
        try:
            self._begin()
            gap_s = self._kill()
            outcome = self._finish(gap_s)
            if outcome.difference:
                return outcome
            self._move()
            if self._plan.keep:
                self._say("east would be killed now; it stays, since everything is kept")
            else:
                self._lose_east()
            read = self._go_on()
            if not self._plan.keep:
                self._come_back()
            return self._end(gap_s, read)
        finally:
            if self._writers is not None:
                self._writers.stop()
            if self._reader is not None:
                self._reader.close()
            if self._tail is not None:
                self._tail.close()

    def _begin(self) -> None:
        plan, partitions = self._plan, sum(self._plan.topics.values())
        self._stage.create_topics(plan.topics)
        self._say(f"both serve; east has {partitions} partitions of {', '.join(plan.topics)}, west has nothing yet")
        self._mirror = self._stage.start_mirror(plan.topics)
        self._say("starting the mirror east->west, which is a Spark job, and waiting for the twins on west")
        started_s = time.monotonic()
        self._until(
            lambda: len(self._target.read()) == partitions, FIRST_RECORD_TIMEOUT_S, "there are no twins on west"
        )
        self._say(f"the twins are there, {time.monotonic() - started_s:.1f} s after the mirror's start")
        self._proxy = self._stage.start_proxy()
        self._say("a proxy gives clients one address for both clusters; it leads each topic to where it is at home")
        self._stage.start_load(self._proxy, plan.topics, COMPRESSIONS, plan.records_per_s)
        self._say(
            f"a producer writes {plan.records_per_s:,.0f} records/s there, and so to east, with keys and headers,"
            f" compressed with {', '.join(COMPRESSIONS)}"
        )
        self._reader = GroupReader(self._proxy, plan.topics)
        self._say(f"a consumer group, {GROUP}, reads there")
        self._tail = TwinTail(self._stage.west.cluster, plan.topics)
        self._say("look at lag, the records that west lacks, and at delay, from produce on east to a consumer on west:")
        self._watch_until(lambda: sum(self._target.read().values()) > 0, FIRST_RECORD_TIMEOUT_S, "west has no record")
        self._watch(plan.carry_s)
        self._come_level()

    def _come_level(self) -> None:
        """Waits until west lacks less than a second's records. Halves the rate on a machine that does not keep up."""
        rate, least = self._plan.records_per_s, float("inf")
        until_s = time.monotonic() + CATCH_UP_TIMEOUT_S
        slower_s = time.monotonic() + SLOW_DOWN_AFTER_S
        while (lag := self._lag()) >= rate:
            now_s = time.monotonic()
            if now_s > until_s:
                raise LabError("lab.demo-timeout", what="west has not caught up", seconds=CATCH_UP_TIMEOUT_S)
            if now_s > slower_s:
                if lag > least / 2 and rate > RECORDS_PER_S_MIN:
                    rate /= 2
                    self._stage.slow_load()
                    self._say(f"this machine does not keep up with that, beside all else: {rate:,.0f} records/s now")
                least, slower_s = lag, now_s + SLOW_DOWN_AFTER_S
            self._watch(0.1)

    def _kill(self) -> float:
        assert self._tail is not None
        tail = self._tail
        tail.begin_watch()
        killed = self._mirror.kill_one_worker()
        killed_s = time.monotonic()
        self._say(f"kill -9 to process {killed}, a Spark worker that runs a task; look at lag and delay:")
        self._watch(1.5 * STALLED_PARTITION_S)
        # Written after the kill, so arrival proves a living task; records under way at the kill prove nothing.
        goal = self._source.read()
        self._watch_until(lambda: self._reached(goal), RECOVERY_TIMEOUT_S, "the killed task did not come back")
        self._watch_until(
            lambda: tail.silent_now_s() < STALLED_PARTITION_S, RECOVERY_TIMEOUT_S, "some partition brings nothing more"
        )
        self._say(f"{time.monotonic() - killed_s:.1f} s after the kill every partition flows again")
        silences_s = tail.silences_s().values()
        struck_s = [silence_s for silence_s in silences_s if silence_s >= STALLED_PARTITION_S]
        spared_s = [silence_s for silence_s in silences_s if silence_s < STALLED_PARTITION_S]
        gap_s = max(silences_s, default=0.0)
        spared = f"; the other {len(spared_s)} went on, silent for {max(spared_s):.1f} s at most" if spared_s else ""
        self._say(f"the gap: {len(struck_s)} partitions stood still for up to {gap_s:.1f} s{spared}")
        assert self._reader is not None
        self._stood = self._reader.leave()
        self._say(f"{GROUP} stops for now, after {sum(self._stood.values()):,} records; others keep coming")
        self._watch(self._plan.carry_s)
        return gap_s

    def _finish(self, gap_s: float) -> DemoOutcome:
        acknowledged = self._acknowledged = self._stage.stop_load()
        self._say(f"the producer has stopped: east acknowledged {acknowledged:,} records")
        self._catch_up()
        self._say("west has everything; now an ordinary consumer reads both sides and compares")
        self._say("each offset, key, value, header and timestamp")
        outcome = self._compared(gap_s)
        if not outcome.difference and outcome.records != acknowledged:
            difference = f"both sides hold {outcome.records} records, {acknowledged} were acknowledged"
            return replace(outcome, difference=difference)
        return outcome

    def _compared(self, gap_s: float, rescued: DemoRescuedRecords | None = None) -> DemoOutcome:
        found = []
        for topic in self._plan.topics:
            heard = rescued.listener(topic) if rescued else lambda _message: None
            compared = compare_topic(self._stage.east.cluster, self._stage.west.cluster, topic, heard=heard)
            self._say(f"  {compared}")
            found.append(compared)
        records, partitions = sum(one.records for one in found), sum(one.partitions for one in found)
        difference = next((str(comparison) for comparison in found if not comparison.identical), "")
        return DemoOutcome(records, partitions, gap_s, difference)

    def _move(self) -> None:
        topics = self._plan.topics
        self._writers = writers = DemoWriters(topics, self._proxy)
        self._say("each topic has a writer now, a stock producer that knows the proxy's address and nothing else")
        self._until(lambda: len(writers.first_since(0, topics)) == len(topics), 30, "not all are written")
        self._say(f"a planned switch: {MOVED_TOPIC} moves to west while it is written:")
        since_s = time.monotonic()
        run_verb(self._mirror, ["switch", "run", MOVED_TOPIC, "--to", "west", "--yes"], self._say)
        done_s, before = time.monotonic(), self._ends_on_west(MOVED_TOPIC)
        self._until(
            lambda: bool(writers.first_since(done_s, [MOVED_TOPIC])), SWITCH_TIMEOUT_S, f"{MOVED_TOPIC} is not written"
        )
        self._wait(NEW_HOME_PAUSE_S)
        if self._ends_on_west(MOVED_TOPIC) <= before:
            raise LabError("lab.demo-not-replicated", topic=MOVED_TOPIC)
        self._say(
            f"  its writer goes on at west and was told nothing: its longest pause was"
            f" {writers.pause_s(MOVED_TOPIC, since_s):.1f} s"
        )
        if self._plan.keep:
            self._acknowledged += writers.stop()

    def _lose_east(self) -> None:
        assert self._writers is not None
        writers, others = self._writers, [topic for topic in self._plan.topics if topic != MOVED_TOPIC]
        self._until(self._stands_on_west, GROUP_TIMEOUT_S, f"the committed offsets of {GROUP} are not on west")
        self._say("the mirror's workers are stopped for a moment, so that some records are not replicated; then")
        with PausedWorkers(self._mirror):
            had = writers.acknowledged(others)
            self._until(
                lambda: writers.acknowledged(others) >= had + UNREPLICATED_RECORDS, 30, "east takes nothing more"
            )
            self._stage.kill_east()
        self._say("kill -9 to east: the whole cluster is gone, its topics move by force:")
        begun_s = time.monotonic()
        run_verb(self._mirror, ["switch", "run", *others, "--to", "west", "--force", "--yes"], self._say)
        self._until(
            lambda: len(writers.first_since(begun_s, others)) == len(others), SWITCH_TIMEOUT_S, "west takes nothing"
        )
        took_s = max(writers.first_since(begun_s, others).values()) - begun_s
        self._say(f"  {took_s:.1f} s after the command west takes what is written to {' and '.join(others)}")
        self._say("groups were at home on east as well:")
        run_verb(self._mirror, ["proxy", "groups", "--to", "west", "--force", "--yes"], self._say)
        self._wait(NEW_HOME_PAUSE_S)
        self._acknowledged += writers.stop()

    def _go_on(self) -> int:
        """The group reads the rest at the same address. Returns the number of records read in all."""
        self._say(f"{GROUP} goes on at the same address:")
        read = read_group_to_ends(self._proxy, self._stood, self._target.read())
        before = sum(self._stood.values())
        self._say(f"  {before:,} records before, and at the very next one of each partition {read:,} more:")
        return before + read

    def _stands_on_west(self) -> bool:
        return read_demo_group_offsets(self._stage.west.cluster, self._stood) == self._stood

    def _ends_on_west(self, topic: str) -> int:
        return sum(end for partition, end in self._target.read().items() if partition.topic == topic)

    def _come_back(self) -> None:
        self._stage.restart_east()
        self._say("east is back. What it took and never sent is saved, and it becomes a twin of west:")
        topics = [topic for topic in self._plan.topics if topic != MOVED_TOPIC]
        run_verb(self._mirror, ["switch", "failback", *topics, "--old", "east", "--yes"], self._say)
        # The topics were recreated, which a client that knows the old ones does not notice.
        self._source = LogEndReader(self._stage.east.cluster, self._plan.topics)

    def _end(self, gap_s: float, read: int) -> DemoOutcome:
        """Checks that both sides are identical and that the group read every record once."""
        self._until(lambda: self._source.read() == self._target.read(), CATCH_UP_TIMEOUT_S, "the sides are not level")
        self._say("both sides are compared again:")
        rescued = DemoRescuedRecords(self._mirror.settings.parent / "rescued")
        outcome = self._compared(gap_s, rescued)
        if outcome.difference:
            return outcome
        if outcome.records != read:
            raise LabError("lab.group-records", group=GROUP, read=read, records=outcome.records)
        self._say(DemoAccount(self._acknowledged, outcome.records, rescued.count, rescued.again).sentence())
        self._say(f"{GROUP} read {read:,} records in all, none twice, none left out")
        return outcome

    def _wait(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._mirror.check()
            time.sleep(0.05)

    def _catch_up(self) -> None:
        """Returns when the twin's end equals the source's. Raises LabError if replication stalls."""
        ends = self._source.read()
        moved_s, before = time.monotonic(), -1
        while (twins := self._target.read()) != ends:
            self._mirror.check()
            crossed = sum(twins.values())
            if crossed != before:
                moved_s, before = time.monotonic(), crossed
            elif time.monotonic() - moved_s > STALLED_S_MAX:
                lacking = {str(partition): end - twins.get(partition, 0) for partition, end in ends.items()}
                raise LabError("lab.demo-stalled", seconds=STALLED_S_MAX, missing=str(lacking))
            self._line()
            time.sleep(0.05)

    def _watch(self, seconds: float) -> None:
        """Prints a line of figures each second."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._mirror.check()
            self._line()
            time.sleep(0.05)

    def _until(self, done: Callable[[], bool], within_s: float, otherwise: str) -> None:
        """Waits until `done`. Raises LabError after `within_s`."""
        begun_s = said_s = time.monotonic()
        while not done():
            self._mirror.check()
            now_s = time.monotonic()
            if now_s - begun_s > within_s:
                raise LabError("lab.demo-timeout", what=otherwise, seconds=within_s)
            if now_s - said_s > WAIT_NOTICE_INTERVAL_S:
                said_s = now_s
                self._say(f"  waiting, for {now_s - begun_s:.0f} s so far")
            time.sleep(0.05)

    def _watch_until(self, done: Callable[[], bool], within_s: float, otherwise: str) -> None:
        """As `_until`, with a line of figures each second."""
        deadline_s = time.monotonic() + within_s
        while not done():
            if time.monotonic() > deadline_s:
                raise LabError("lab.demo-timeout", what=otherwise, seconds=within_s)
            self._watch(0.1)

    def _reached(self, goal: Mapping[TopicPartition, int]) -> bool:
        twins = self._target.read()
        return all(twins.get(partition, 0) >= end for partition, end in goal.items())

    def _lag(self) -> int:
        # The target first: in the other order, the twin might seem to be ahead.
        target = sum(self._target.read().values())
        return sum(self._source.read().values()) - target

    def _line(self) -> None:
        now_s = time.monotonic()
        if now_s - self._line_at_s < PROGRESS_INTERVAL_S:
            return
        target, source = sum(self._target.read().values()), sum(self._source.read().values())
        was_s, target_was, source_was = self._before
        took_s = now_s - was_s if was_s else PROGRESS_INTERVAL_S
        delays_ms = self._tail.take_delays_ms() if self._tail else []
        delay = ""
        if delays_ms:
            p50_ms, p99_ms = delays_ms[len(delays_ms) // 2], delays_ms[len(delays_ms) * 99 // 100]
            delay = f"   delay p50 {p50_ms:,} ms, p99 {p99_ms:,} ms"
        self._say(
            f"  east {source:9,} ({(source - source_was) / took_s:7,.0f}/s)   west {target:9,}"
            f" ({(target - target_was) / took_s:7,.0f}/s)   lag {source - target:7,}{delay}"
        )
        self._line_at_s, self._before = now_s, (now_s, target, source)

    def _say(self, sentence: str) -> None:
        self._tell(f"{time.monotonic() - self._started_s:4.0f} s  {sentence}")
