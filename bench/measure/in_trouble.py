"""`python -m bench.measure.in_trouble [--turns N]`: what a target in trouble does to the others of its broadcast.

First how many records a second all targets take when the source is written as fast as it goes: saturation. Then, at
60 % of that, probes go along in a topic of their own on the same task, and are read on each healthy target: their delay
while all is well, and while the last target is dead, stalled, or behind 1 MB/s. It gets well and catches up before the
next turn. The last line is flat JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.measure.broadcast import ARRIVE_S_MAX, PACE_S, RECORDS, RECORDS_SHORT, Place, stage
from testkit.cluster import RigCluster
from testkit.faults import dead, on_slow_line, stalled
from testkit.figures import StageError, percentile
from testkit.loader import PARTITIONS, plain
from testkit.watermarks import TopicEndReader
from twinshore.lab.clients import client_settings
from twinshore.lab.mirror_process import MirrorProcess

TARGETS = 4
PART = 0.6
SLOW_BYTES_S = 1_000_000.0
PROBES_S = 50.0
TURNS = 5
CALM_S = 2.0
PHASE_S, PHASE_S_LONG = 12.0, 30.0
CATCH_UP_S_MAX = 240.0
LATE_S_MAX = 30.0
_SENT = struct.Struct(">qi")  # when, and in which phase
Say = Callable[[str], None]


def slow(target: RigCluster) -> AbstractContextManager[None]:
    """Behind a line of 1 MB/s."""
    return on_slow_line(target, SLOW_BYTES_S)


TROUBLES: tuple[Callable[[RigCluster], AbstractContextManager[None]], ...] = (dead, stalled, slow)


@dataclass(frozen=True, slots=True)
class Turn:
    """Of the healthy targets, all probes together: p99 of delay while all was well and during the trouble. `lag_s`: the
    most that one of them was behind, as the time in which so much is written."""

    trouble: str
    calm_p99_ms: float
    p99_ms: float
    lag_s: float
    caught_up_s: float

    @property
    def times(self) -> float:
        return self.p99_ms / self.calm_p99_ms

    def __str__(self) -> str:
        return (
            f"the last target {self.trouble}: p99 {self.p99_ms:.1f} ms, {self.calm_p99_ms:.1f} while all was well,"
            f" {self.times:.2f} times; at most {self.lag_s:.2f} s behind; the last had caught up after"
            f" {self.caught_up_s:.1f} s"
        )


@dataclass(frozen=True, slots=True)
class InTrouble:
    """All turns, at this rate. What is said of a trouble is the median of its turns; how far one was behind, the most
    of all."""

    rate: float
    saturation: float
    turns: tuple[Turn, ...]

    def times(self, trouble: str) -> float:
        return statistics.median(turn.times for turn in self.turns if turn.trouble == trouble)

    def lag_s(self, trouble: str) -> float:
        return max(turn.lag_s for turn in self.turns if turn.trouble == trouble)

    @property
    def troubles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(turn.trouble for turn in self.turns))

    def __str__(self) -> str:
        count = len(self.turns) // len(self.troubles)
        parts = [f"{one} {self.times(one):.2f} times, {self.lag_s(one):.2f} s behind" for one in self.troubles]
        return (
            f"at {self.rate:,.0f} of {self.saturation:,.0f} records/s, the healthy ones' p99 by what it is while all is"
            f" well: {'; '.join(parts)}; median and most of {count} turns"
        )


@dataclass(slots=True)
class Probes:
    """What was sent and heard; `phase` is written into each that is sent. Times are this process's."""

    source: RigCluster
    targets: Sequence[RigCluster]
    topic: str
    phase: int = 0
    sent: dict[int, int] = field(default_factory=dict)
    heard: dict[tuple[int, str], list[float]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._send, daemon=True)]
        threads += [threading.Thread(target=self._listen, args=(one,), daemon=True) for one in self.targets]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.ended.set()
            for thread in threads:
                thread.join(LATE_S_MAX)

    def p99_ms(self, phase: int) -> float:
        """Over all targets, once each has heard every probe of this phase. StageError when one does not come."""
        deadline_s = time.monotonic() + LATE_S_MAX
        while any(len(self.heard.get((phase, one.name), ())) < self.sent[phase] for one in self.targets):
            if time.monotonic() > deadline_s:
                counts = {one.name: len(self.heard.get((phase, one.name), ())) for one in self.targets}
                raise StageError(f"of {self.sent[phase]} probes came {counts} within {LATE_S_MAX:g} s")
            time.sleep(0.1)
        return percentile(sorted(ms for one in self.targets for ms in self.heard[phase, one.name]), 0.99)

    def _send(self) -> None:
        producer = Producer({**client_settings(self.source.cluster), "linger.ms": 0, "acks": "all", "log_level": 0})
        begun_s, number = time.monotonic(), 0
        while not self.ended.wait(max(0.0, begun_s + number / PROBES_S - time.monotonic())):
            phase, at = self.phase, number % PARTITIONS
            producer.produce(self.topic, _SENT.pack(time.monotonic_ns(), phase), partition=at)
            producer.poll(0)
            self.sent[phase] = self.sent.get(phase, 0) + 1
            number += 1
        producer.flush(LATE_S_MAX)

    def _listen(self, target: RigCluster) -> None:
        settings = {"group.id": "bench-probes", "enable.auto.commit": False, "fetch.wait.max.ms": 100, "log_level": 0}
        consumer = Consumer({**client_settings(target.cluster), **settings})
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(PARTITIONS)])
        while not self.ended.is_set():
            message = consumer.poll(0.2)
            if message is None or message.error():
                continue
            sent_ns, phase = _SENT.unpack_from(message.value() or b"")
            late_ms = (time.monotonic_ns() - sent_ns) / 1e6
            self.heard.setdefault((phase, target.name), []).append(late_ms)
        consumer.close()


class Load:
    """So many records a second, in ready-made batches, until it ends. StageError then where it has ended by itself:
    whatever was measured behind that says nothing."""

    def __init__(self, place: Place, topic: str, rate: float) -> None:
        self._place, self._topic, self._rate = place, topic, rate
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._fault: Exception | None = None
        self.written = 0

    def _run(self) -> None:
        begun_s = time.monotonic()
        try:
            while not self._ended.wait(max(0.0, begun_s + self.written / self._rate - time.monotonic())):
                self.written += self._place.write(self._topic, int(self._rate * PACE_S), 0.0)
        except Exception as error:
            self._fault = error

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(LATE_S_MAX)
        if self._fault:
            raise StageError(f"the load ended by itself: {self._fault}") from self._fault


def run_in_trouble(*, turns: int, phase_s: float, records: int, targets: int = TARGETS, say: Say = print) -> InTrouble:
    """On clusters of its own; `records` are written to find saturation."""
    with stage(targets, plain(), far=1) as place:
        made: list[Turn] = []
        with place.mirror(targets, together=True) as (process, topic), ExitStack() as stack:
            saturation = _saturation(place, process, topic, records)
            rate = PART * saturation
            say(f"{saturation:,.0f} records/s is saturation; {rate:,.0f} records/s are offered")
            probed = f"{topic}-probes"
            place.source.create_topic(probed, partitions=PARTITIONS)
            probes = Probes(place.source, place.targets[:-1], probed)
            TopicEndReader(place.source.cluster, probed, PARTITIONS).wait_ready()
            for one in place.targets:
                TopicEndReader(one.cluster, probed, PARTITIONS).wait_ready(LATE_S_MAX)
            stack.enter_context(probes.running())
            stack.enter_context(Load(place, topic, rate))
            time.sleep(phase_s)  # behind saturation, and while a new topic gets its twins, delays are none of calm
            for number in range(turns):
                for trouble in TROUBLES:
                    made.append(_turn(place, process, topic, probes, trouble, phase_s, rate))
                    say(f"turn {number + 1} of {turns}: {made[-1]}")
    return InTrouble(rate, saturation, tuple(made))


def _saturation(place: Place, process: MirrorProcess, topic: str, records: int) -> float:
    """Records a second that all targets take, of the second half: the first one warms brokers and tasks."""
    source, count = TopicEndReader(place.source.cluster, topic, PARTITIONS), len(place.targets)
    before, begun_s, written = source.records(), 0.0, 0
    for _ in range(2):
        begun_s = time.monotonic()
        written = place.write(topic, records // 2, 0.0)
        before += written
        place.until(process, topic, count, before, ARRIVE_S_MAX)
    return written / (time.monotonic() - begun_s)


def _turn(
    place: Place,
    process: MirrorProcess,
    topic: str,
    probes: Probes,
    trouble: Callable[[RigCluster], AbstractContextManager[None]],
    phase_s: float,
    rate: float,
) -> Turn:
    """All is well, then trouble, then the last target catches up."""
    time.sleep(CALM_S)
    last, calm = place.targets[-1], probes.phase + 1
    probes.phase = calm
    time.sleep(phase_s)
    with trouble(last):
        probes.phase = calm + 1
        lag_s = _lag_s(place, topic, phase_s, rate)
        probes.phase = calm + 2  # counts for nothing: it is getting well
        if _behind(place, topic, last) < rate:
            raise StageError(f"{last.name} was {trouble.__name__}, and kept up: that shows nothing")
    begun_s = time.monotonic()
    while _behind(place, topic, last) > rate:
        process.check()
        if time.monotonic() - begun_s > CATCH_UP_S_MAX:
            raise StageError(f"{last.name} had not caught up {CATCH_UP_S_MAX:g} s after it was {trouble.__name__}")
        time.sleep(0.2)
    caught_up_s = time.monotonic() - begun_s
    return Turn(trouble.__name__, probes.p99_ms(calm), probes.p99_ms(calm + 1), lag_s, caught_up_s)


def _behind(place: Place, topic: str, target: RigCluster) -> int:
    written = TopicEndReader(
        place.source.cluster, topic, PARTITIONS
    ).records()  # first: what comes meanwhile is not behind
    return written - TopicEndReader(target.cluster, topic, PARTITIONS).records()


def _lag_s(place: Place, topic: str, seconds: float, rate: float) -> float:
    """The most that a healthy target is behind in so many seconds."""
    source, until_s, most = TopicEndReader(place.source.cluster, topic, PARTITIONS), time.monotonic() + seconds, 0
    ends = [TopicEndReader(one.cluster, topic, PARTITIONS) for one in place.targets[:-1]]
    while time.monotonic() < until_s:
        written = source.records()  # before the others: what comes meanwhile is not behind
        most = max(most, *(written - end.records() for end in ends))
        time.sleep(0.1)
    return most / rate


def main() -> int:
    """Measures, and says so."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure.in_trouble", description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--phase-s", type=float, default=PHASE_S)
    parser.add_argument("--targets", type=int, default=TARGETS)
    parser.add_argument("--records", type=int, default=RECORDS_SHORT, help=f"to find saturation; {RECORDS} for long")
    asked = parser.parse_args()

    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)

    found = run_in_trouble(**vars(asked), say=say)
    say(str(found))
    flat: dict[str, object] = {"bench": "in_trouble", "rate": round(found.rate), "saturation": round(found.saturation)}
    for one in found.troubles:
        flat |= {f"{one}_p99_times": round(found.times(one), 2), f"{one}_lag_s": round(found.lag_s(one), 2)}
    print(json.dumps(flat))
    return 0


if __name__ == "__main__":
    sys.exit(main())
