"""The demo's story: two clusters stay the same while a pump is killed; one is lost, its readers go on at the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twinshore.fleet import NamedPartition
from twinshore.lab.compare import compare_topic
from twinshore.lab.demo_ends import LogEnds
from twinshore.lab.demo_group import GROUP, GroupReader, places_on, read_on
from twinshore.lab.demo_stage import DemoStage
from twinshore.lab.demo_tail import TwinTail
from twinshore.lab.errors import LabError, log_tail

COMPRESSIONS = ("lz4", "zstd", "gzip")
LINE_EVERY_S = 1.0
FIRST_WITHIN_S = 90.0
# No word from a partition for so long means that its lane stands; records come many times a second.
STRUCK_S = 1.0
BACK_WITHIN_S = 60.0
CAUGHT_UP_WITHIN_S = 60.0
GROUP_WITHIN_S = 30.0
PATIENCE_EVERY_S = 5.0
STALLED_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """`carry_s`: how long records flow before the kill, and again after it."""

    topics: Mapping[str, int] = field(default_factory=lambda: {"orders": 4, "payments": 4, "clicks": 4})
    records_per_s: float = 6_000.0
    carry_s: float = 12.0
    keep: bool = False


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """`difference` is empty when both sides are identical."""

    records: int
    partitions: int
    gap_s: float
    difference: str = ""


def run_demo(plan: DemoPlan, say: Callable[[str], None]) -> DemoOutcome:
    """Plays it; `say` gets a sentence or a line of figures at a time. Leaves nothing behind, unless `plan.keep`."""
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
        raise
    finally:
        if not kept:
            say("ending both clusters and the mirror")
            stage.close()


class _Play:
    """One run. Each act says what happens and what to look at."""

    def __init__(self, plan: DemoPlan, stage: DemoStage, say: Callable[[str], None]) -> None:
        self._plan, self._stage = plan, stage
        self._tell = say
        self._started_s = time.monotonic()
        self._line_at_s = 0.0
        self._before = (0.0, 0, 0)
        self._tail: TwinTail | None = None
        self._reader: GroupReader | None = None
        self._stood: dict[NamedPartition, int] = {}

    def run(self) -> DemoOutcome:
        self._say("starting two real Kafka clusters on this machine, east and west, one broker each")
        self._stage.start_clusters()
        self._source = LogEnds(self._stage.east.cluster, self._plan.topics)
        self._target = LogEnds(self._stage.west.cluster, self._plan.topics)
        try:
            self._begin()
            gap_s = self._kill()
            outcome = self._finish(gap_s)
            if not outcome.difference:
                self._go_on(outcome.records)
            return outcome
        finally:
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
        self._until(lambda: len(self._target.read()) == partitions, FIRST_WITHIN_S, "there are no twins on west")
        self._say(f"the twins are there, {time.monotonic() - started_s:.1f} s after the mirror's start")
        self._stage.start_load(plan.topics, COMPRESSIONS, plan.records_per_s)
        self._say(
            f"a producer writes {plan.records_per_s:,.0f} records/s to east, with keys and headers,"
            f" compressed with {', '.join(COMPRESSIONS)}"
        )
        self._reader = GroupReader(self._stage.east.cluster, plan.topics)
        self._say(f"a consumer group, {GROUP}, reads on east")
        self._tail = TwinTail(self._stage.west.cluster, plan.topics)
        self._say("look at lag, the records that west lacks, and at delay, from produce on east to a consumer on west:")
        self._watch_until(lambda: sum(self._target.read().values()) > 0, FIRST_WITHIN_S, "no record crossed")
        self._watch(plan.carry_s)
        self._watch_until(lambda: self._lag() < plan.records_per_s, CAUGHT_UP_WITHIN_S, "west did not catch up")

    def _kill(self) -> float:
        assert self._tail is not None
        tail = self._tail
        tail.begin_watch()
        killed = self._mirror.kill_a_pump()
        killed_s = time.monotonic()
        self._say(f"kill -9 to process {killed}, a Spark worker that carries a lane; look at lag and delay:")
        self._watch(1.5 * STRUCK_S)
        # Written after the kill, so a lane that brings it lives again; what was on its way then proves nothing.
        goal = self._source.read()
        self._watch_until(lambda: self._reached(goal), BACK_WITHIN_S, "the killed lane did not come back")
        self._watch_until(lambda: tail.silent_now_s() < STRUCK_S, BACK_WITHIN_S, "some partition brings nothing more")
        self._say(f"{time.monotonic() - killed_s:.1f} s after the kill every partition flows again")
        silences_s = tail.silences_s().values()
        struck_s = [silence_s for silence_s in silences_s if silence_s >= STRUCK_S]
        spared_s = [silence_s for silence_s in silences_s if silence_s < STRUCK_S]
        gap_s = max(silences_s, default=0.0)
        spared = f"; the other {len(spared_s)} went on, silent for {max(spared_s):.1f} s at most" if spared_s else ""
        self._say(f"the gap: {len(struck_s)} partitions stood still for up to {gap_s:.1f} s{spared}")
        assert self._reader is not None
        self._stood = self._reader.leave()
        self._say(f"{GROUP} on east stops for now, after {sum(self._stood.values()):,} records; others keep coming")
        self._watch(self._plan.carry_s)
        return gap_s

    def _finish(self, gap_s: float) -> DemoOutcome:
        acknowledged = self._stage.stop_load()
        self._say(f"the producer has stopped: east acknowledged {acknowledged:,} records")
        self._catch_up()
        self._say("west has everything; now an ordinary consumer reads both sides and compares")
        self._say("each offset, key, value, header and timestamp")
        found = []
        for topic in self._plan.topics:
            compared = compare_topic(self._stage.east.cluster, self._stage.west.cluster, topic)
            self._say(f"  {compared}")
            found.append(compared)
        records, partitions = sum(one.records for one in found), sum(one.partitions for one in found)
        difference = next((str(one) for one in found if not one.identical), "")
        if not difference and records != acknowledged:
            difference = f"both sides hold {records} records, {acknowledged} were acknowledged"
        return DemoOutcome(records, partitions, gap_s, difference)

    def _go_on(self, records: int) -> None:
        """East is lost; its group reads the rest on west."""
        west = self._stage.west.cluster
        self._until(lambda: places_on(west, self._stood) == self._stood, GROUP_WITHIN_S, f"{GROUP} is not on west")
        ends = self._target.read()
        if self._plan.keep:
            self._say("east would be killed now; it stays, since everything is kept")
        else:
            self._stage.kill_east()
            self._say("kill -9 to east: the whole cluster is gone")
        self._say(f"{GROUP} goes on at west, told nothing but another address:")
        read = read_on(west, self._stood, ends)
        before = sum(self._stood.values())
        if before + read != records:
            raise LabError(f"{GROUP} read {before} records on east and {read} on west, of {records}")
        self._say(f"  {before:,} records on east, and at the very next one of each partition {read:,} on west:")
        self._say(f"  {records:,} in all, none twice, none left out")

    def _catch_up(self) -> None:
        """Returns when the twin ends where the source does; LabError when it stops coming nearer."""
        ends = self._source.read()
        moved_s, before = time.monotonic(), -1
        while (twins := self._target.read()) != ends:
            self._mirror.check()
            crossed = sum(twins.values())
            if crossed != before:
                moved_s, before = time.monotonic(), crossed
            elif time.monotonic() - moved_s > STALLED_S_MAX:
                lacking = {str(named): end - twins.get(named, 0) for named, end in ends.items()}
                raise LabError(f"nothing has crossed for {STALLED_S_MAX:.0f} s; west still lacks {lacking}")
            self._line()
            time.sleep(0.05)

    def _watch(self, seconds: float) -> None:
        """A line of figures a second."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._mirror.check()
            self._line()
            time.sleep(0.05)

    def _until(self, done: Callable[[], bool], within_s: float, otherwise: str) -> None:
        """Waits until it is so; LabError when it is not in time."""
        begun_s = said_s = time.monotonic()
        while not done():
            self._mirror.check()
            now_s = time.monotonic()
            if now_s - begun_s > within_s:
                raise LabError(f"{otherwise} after {within_s:.0f} s")
            if now_s - said_s > PATIENCE_EVERY_S:
                said_s = now_s
                self._say(f"  waiting, for {now_s - begun_s:.0f} s so far")
            time.sleep(0.05)

    def _watch_until(self, done: Callable[[], bool], within_s: float, otherwise: str) -> None:
        """Waits with a line of figures a second until it is so; LabError when it is not in time."""
        deadline_s = time.monotonic() + within_s
        while not done():
            if time.monotonic() > deadline_s:
                raise LabError(f"{otherwise} within {within_s:.0f} s")
            self._watch(0.1)

    def _reached(self, goal: Mapping[NamedPartition, int]) -> bool:
        """Whether every twin has come as far."""
        twins = self._target.read()
        return all(twins.get(named, 0) >= end for named, end in goal.items())

    def _lag(self) -> int:
        # The target first: asked the other way round, the twin might seem to be ahead.
        target = sum(self._target.read().values())
        return sum(self._source.read().values()) - target

    def _line(self) -> None:
        now_s = time.monotonic()
        if now_s - self._line_at_s < LINE_EVERY_S:
            return
        target, source = sum(self._target.read().values()), sum(self._source.read().values())
        was_s, target_was, source_was = self._before
        took_s = now_s - was_s if was_s else LINE_EVERY_S
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
