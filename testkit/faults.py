"""Does the twin stay identical while everything around it fails? Random faults under load, then every record compared.

`python -m testkit.faults --faults 20 --seed 7 --rate 10000 [--mirrors 2] [--brokers 3] [--leaders-move]`

`--targets 4`: a broadcast to so many, each of which must be identical.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from testkit.cluster import RigCluster
from testkit.watermarks import close_kept_consumers, read_end_offsets
from twinshore.config.model import Cluster, Secret
from twinshore.lab.clients import create_log_consumer, read_to_end
from twinshore.lab.cluster import LabBroker
from twinshore.lab.mirror_process import MirrorProcess, settings_of
from twinshore.lab.processes import LabError
from twinshore.lab.produce import Workload
from twinshore.state.store import open_store

TOPIC = "orders"
ARRIVE_S_MAX = 180.0
CALM_S = (0.5, 3.0)
TASKS_S_MAX = 240.0  # a killed driver's successor starts a JVM and waits for the lease
BEGIN_S_MAX = 240.0  # two mirrors and six brokers on two cores start slowly
PAUSE_S = (1.0, 7.0)
# Preferred leaders are elected again within seconds of a broker's return, not within minutes.
RESTLESS = {"leader.imbalance.check.interval.seconds": "5", "leader.imbalance.per.broker.percentage": "0"}
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FaultReport:
    """`identical`: every offset of every partition holds the same record on all sides, and all that was acked. What is
    lost, doubled or out of order is counted over all targets.
    `records_s` were acknowledged, the source's own faults included."""

    faults: int
    lost: int
    duplicated: int
    reordered: int
    identical: bool
    seed: int
    records: int
    acked: int
    partitions: int
    brokers: int
    mirrors: int
    targets: int
    incidents: int
    catch_up_s: float
    took_s: float
    records_s: float
    kinds: dict[str, int]

    def line(self) -> str:
        return json.dumps({"bench": "faults", **asdict(self)})


def run_faults(
    *,
    faults: int = 20,
    seed: int = 1,
    rate: float = 10_000,
    mirrors: int = 1,
    brokers: int = 1,
    leaders_move: bool = False,
    targets: int = 1,
    partitions: int = 4,
    value_bytes: int = 100,
    kinds: tuple[str, ...] = (),
    jvm_flags: tuple[str, ...] = (),
    say: Say = print,
) -> FaultReport:
    """Runs the whole of it on clusters of its own; `kinds` limits which faults may happen."""
    began_s = time.monotonic()
    shape = {"brokers": brokers, "heap_mb": 512 if brokers == targets == 1 else 384, "jvm_flags": jvm_flags}
    with (
        tempfile.TemporaryDirectory(prefix="twinshore-faults-") as folder,
        Stage(Path(folder), shape, (mirrors, targets), partitions=partitions, seed=seed, say=say) as stage,
    ):
        allowed = kinds or stage.kinds(leaders_move=leaders_move)
        done: Counter[str] = Counter()
        with Workload(stage.source.cluster, TOPIC, records_per_s=rate, value_bytes=value_bytes, seed=seed) as load:
            loading_s = time.monotonic()
            stage.await_flow(load)
            for number in range(faults):
                kind = allowed[number] if number < len(allowed) else stage.chance.choice(allowed)
                say(f"fault {number + 1} of {faults}: {kind}")
                stage.act(kind)
                done[kind] += 1
                time.sleep(stage.chance.uniform(*CALM_S))
                stage.check()
                say(f"  {stage.behind(load.acked)}")
            acked, stopped_s = load.stop(), time.monotonic()
        arrived = stage.await_end()
        caught_up_s = time.monotonic() - stopped_s
        say(f"{acked} records acknowledged; each twin {'' if arrived else 'NEVER '}caught up: {caught_up_s:.1f} s")
        counts = stage.compared()
        incidents = stage.incidents()
    return FaultReport(
        faults=faults,
        lost=counts.lost,
        duplicated=counts.duplicated,
        reordered=counts.reordered,
        identical=counts.identical and counts.records == acked,
        seed=seed,
        records=counts.records,
        acked=acked,
        partitions=partitions,
        brokers=brokers,
        mirrors=mirrors,
        targets=targets,
        incidents=incidents,
        catch_up_s=round(caught_up_s, 1),
        took_s=round(time.monotonic() - began_s, 1),
        records_s=round(acked / (stopped_s - loading_s)),
        kinds=dict(done),
    )


class Stage:
    """Clusters behind proxies, the mirrors between them, and every way to harm them."""

    def __init__(
        self, folder: Path, shape: Mapping[str, Any], counts: tuple[int, int], *, partitions: int, seed: int, say: Say
    ) -> None:
        """`shape`: of each cluster, as RigCluster takes it. `counts`: of mirrors and of targets; more than one target
        get a broadcast."""
        mirrors, targets = counts
        self.chance = random.Random(seed)
        self._say = say
        self._folder = folder
        self.source = RigCluster("east", settings=RESTLESS, via_proxy=True, **shape)
        names = ["west", *(f"west{number}" for number in range(2, targets + 1))]
        self.targets = [RigCluster(name, settings=RESTLESS, via_proxy=True, **shape) for name in names]
        self.mirrors: list[MirrorProcess] = []
        self._count = mirrors
        self._partitions = partitions

    def __enter__(self) -> Stage:
        try:
            for cluster in (self.source, *self.targets):
                cluster.start()
            safe = {"min.insync.replicas": "2"} if len(self.source.brokers) > 1 else {}
            self.source.create_topic(TOPIC, partitions=self._partitions, settings=safe)
            for number in range(self._count):
                self._start_mirror(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for mirror in self.mirrors:
            mirror.end()
        close_kept_consumers()
        for cluster in (self.source, *self.targets):
            cluster.stop()

    def _start_mirror(self, number: int) -> None:
        store = self._folder / "store.db"
        settings = settings_of(
            self.source.wan_cluster,
            *(cluster.wan_cluster for cluster in self.targets),
            store=store,
            topics=f"{TOPIC}.*",
            mirror={"task_run_s": 10, "tasks_per_link": 2},
        )
        ports = [proxy.port for cluster in self.targets for proxy in cluster.proxies]
        mirror = MirrorProcess(self._folder / f"mirror-{number}", settings, target_ports=ports)
        mirror.start()
        self.mirrors.append(mirror)

    def kinds(self, *, leaders_move: bool) -> tuple[str, ...]:
        """Every fault there is for these clusters: moves of leaders first where they are wanted, so that a short run
        has them too; the others in an order of the seed's own."""
        both = ("broker killed", "broker paused", "network cut", "network half open")
        found = ["worker killed", "worker paused", "driver killed"]
        found += [f"{side} {what}" for side in ("source", "target") for what in both]
        self.chance.shuffle(found)
        moves = leaders_move and len(self.source.brokers) > 1
        first = [f"{side} leaders moved" for side in ("source", "target")] if moves else []
        return (*first, *found)

    def act(self, kind: str) -> None:
        """Does it, waits as long as it lasts, and mends what does not mend itself."""
        side = self._side(kind)
        match kind.removeprefix("source ").removeprefix("target "):
            case "worker killed":
                self._strike(psutil.Process.kill)
            case "worker paused":
                self._pause_worker()
            case "driver killed":
                mirror = self.chance.choice(self.mirrors)
                mirror.kill()
                mirror.start()
            case "broker killed":
                broker = self._broker(side)
                broker.kill()
                time.sleep(self.chance.uniform(0.0, 3.0))
                broker.restart()
            case "broker paused":
                broker = self._broker(side)
                broker.pause()
                time.sleep(self.chance.uniform(*PAUSE_S))
                broker.resume()
            case "network cut":
                self._network(side, "cut")
            case "network half open":
                self._network(side, "half_open")
            case "leaders moved":
                self._move_leaders(side)
            case other:
                raise LabError(f"no such fault: {other}")

    def _side(self, kind: str) -> RigCluster:
        if kind.startswith("source"):
            return self.source
        # One target takes no chance: what a seed gave before there were broadcasts, it gives still.
        side = self.chance.choice(self.targets) if len(self.targets) > 1 else self.targets[0]
        if kind.startswith("target") and len(self.targets) > 1:
            self._say(f"  it is {side.name}")
        return side

    def behind(self, acked: int) -> str:
        """By how much each twin is behind what was acknowledged."""
        found = {
            cluster.name: acked - sum(read_end_offsets(cluster.cluster, TOPIC, self._partitions))
            for cluster in self.targets
        }
        return ", ".join(f"{name} is {records} records behind" for name, records in found.items())

    def _strike(self, strike: Callable[[psutil.Process], None]) -> psutil.Process:
        """A worker that carries a task, as soon as there is one: a fault that met nobody would count as survived."""
        deadline = time.monotonic() + TASKS_S_MAX
        while time.monotonic() < deadline:
            tasks = [task for mirror in self.mirrors for task in mirror.task_processes()]
            if tasks:
                victim = self.chance.choice(tasks)
                with contextlib.suppress(psutil.NoSuchProcess):
                    strike(victim)
                    return victim
            self.check()
            time.sleep(0.1)
        raise LabError(f"nobody tasks within {TASKS_S_MAX:.0f} s")

    def _pause_worker(self) -> None:
        """Longer than its lease now and then: another will have taken over when it wakes up."""
        victim = self._strike(psutil.Process.suspend)
        time.sleep(self.chance.uniform(1.0, 9.0))
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.resume()

    def _broker(self, side: RigCluster) -> LabBroker:
        return self.chance.choice(side.brokers)

    def _network(self, side: RigCluster, what: str) -> None:
        proxies = list(side.proxies) if self.chance.random() < 0.5 else [self.chance.choice(side.proxies)]
        for proxy in proxies:
            getattr(proxy, what)()
        time.sleep(self.chance.uniform(*PAUSE_S))
        for proxy in proxies:
            proxy.heal()

    def _move_leaders(self, side: RigCluster) -> None:
        """A broker lags, another gives its leaderships away; the preferred leaders take over again by themselves."""
        first, second = self.chance.sample(list(side.brokers), 2)
        first.pause()
        time.sleep(self.chance.uniform(0.5, 3.0))
        first.resume()
        second.stop()
        second.restart()

    def await_flow(self, load: Workload) -> None:
        """Returns once records reach each twin: faults before that would meet nothing."""
        deadline = time.monotonic() + BEGIN_S_MAX
        while any(
            sum(read_end_offsets(cluster.cluster, TOPIC, self._partitions)) < min(1_000, load.acked or 1)
            for cluster in self.targets
        ):
            self.check()
            if time.monotonic() > deadline:
                raise LabError(
                    f"nothing has crossed within {BEGIN_S_MAX:.0f} s; the mirror says:\n{self.mirrors[0].said[-2000:]}"
                )
            time.sleep(0.2)

    def await_end(self) -> bool:
        """Whether each twin reached the source's end in good time."""
        deadline = time.monotonic() + ARRIVE_S_MAX
        while time.monotonic() < deadline:
            source, *twins = (
                read_end_offsets(side.cluster, TOPIC, self._partitions) for side in (self.source, *self.targets)
            )
            if all(twin == source for twin in twins) and sum(source) > 0:
                return True
            self.check()
            time.sleep(0.25)
        for mirror in self.mirrors:
            self._say(mirror.said[-4000:])
        return False

    def check(self) -> None:
        """Raises when a mirror has ended by itself."""
        for mirror in self.mirrors:
            mirror.check()

    def compared(self) -> Counts:
        """How the twins differ, all of them together; `records` are those of the source."""
        each = [compare(self.source.cluster, cluster.cluster, TOPIC, self._partitions) for cluster in self.targets]
        lost, doubled, moved = (sum(getattr(one, name) for one in each) for name in ("lost", "duplicated", "reordered"))
        return Counts(each[0].records, lost, doubled, moved, all(one.identical for one in each))

    def incidents(self) -> int:
        """Rows of the ledger that speak of a topic: nothing that happened here deserves one. A cluster that was away
        for a while, or a disk of this machine, is told as it should be."""
        with_store = open_store(f"sqlite:///{self._folder / 'store.db'}", Secret())
        try:
            links = [f"{self.source.name}->{cluster.name}" for cluster in self.targets]
            rows = [row for link in links for row in with_store.incidents.rows(link) if row.incident.topic]
        finally:
            with_store.close()
        for row in rows:
            self._say(f"in the ledger: {row.incident.topic}-{row.incident.partition}: {row.incident.sentence}")
        return len(rows)


@contextmanager
def dead(cluster: RigCluster) -> Iterator[None]:
    """Killed, and started again."""
    cluster.brokers[0].kill()
    try:
        yield
    finally:
        cluster.brokers[0].restart()


@contextmanager
def stalled(cluster: RigCluster) -> Iterator[None]:
    """Paused: its connections stand, and nothing comes."""
    cluster.brokers[0].pause()
    try:
        yield
    finally:
        cluster.brokers[0].resume()


@contextmanager
def on_slow_line(cluster: RigCluster, bytes_s: float) -> Iterator[None]:
    """Behind a line of so many bytes a second."""
    cluster.proxy(0).set_bandwidth(bytes_s)
    try:
        yield
    finally:
        cluster.proxy(0).set_bandwidth(0)


@dataclass(frozen=True, slots=True)
class Counts:
    """How two topics differ, by record; all zero and `identical` when they do not."""

    records: int
    lost: int
    duplicated: int
    reordered: int
    identical: bool


def compare(source: Cluster, target: Cluster, topic: str, partitions: int) -> Counts:
    """Reads both sides whole: per offset, a fingerprint of key, value, headers and time stamp."""
    records = lost = duplicated = reordered = 0
    identical = True
    for number in range(partitions):
        ours, theirs = fingerprints(source, topic, number), fingerprints(target, topic, number)
        records += len(ours) // 2
        if ours == theirs:
            continue
        identical = False
        wanted, got = Counter(print_ for _, print_ in pairs(ours)), Counter(print_ for _, print_ in pairs(theirs))
        lost += sum((wanted - got).values())
        duplicated += sum((got - wanted).values())
        reordered += sum(one != other for one, other in zip(pairs(ours), pairs(theirs), strict=False))
    return Counts(records, lost, duplicated, reordered, identical)


def pairs(flat: array[int]) -> list[tuple[int, int]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def fingerprints(cluster: Cluster, topic: str, partition: int) -> array[int]:
    """Offset and fingerprint, one after the other, of every record that a client sees."""
    found: array[int] = array("q")
    with closing(create_log_consumer(cluster, committed=True, settings={"check.crcs": True})) as consumer:
        for one in read_to_end(consumer, topic, partition):
            seen = hash((one.key(), one.value(), tuple(one.headers() or ()), one.timestamp()))
            found.extend((one.offset() or 0, seen))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m testkit.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--rate", type=float, default=10_000)
    parser.add_argument("--mirrors", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--targets", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--leaders-move", action="store_true")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    report = run_faults(**vars(asked), say=lambda sentence: print(sentence, flush=True))
    print(report.line(), flush=True)
    return 0 if report.identical else 1


if __name__ == "__main__":
    sys.exit(main())
