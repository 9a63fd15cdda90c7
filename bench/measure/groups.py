"""`python -m bench.measure.groups`: what rounds over 2 000 groups of 50 partitions take, 1 % changed."""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer

from bench.kit.tree import ProcessTree
from testkit.figures import StageError
from twinshore.config.frozen import COMMIT_MARK
from twinshore.config.model import Cluster, Link
from twinshore.config.settings import Settings, parse_settings
from twinshore.groups.core.sync_state import SyncRoundResult
from twinshore.groups.sync import GroupSync
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import ConsumerGroups
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store, open_store

GROUPS = 2_000
PARTITIONS = 50
RECORDS = 400
CHANGED_PART = 0.01
ROUNDS = 20
ROUND_S_MAX = 1.0
CORES_MAX = 0.5
TOPIC = "many-readers"
_AT_ONCE = 500
_COMING = frozenset({Code.coordinator_load_in_progress, Code.coordinator_not_available, Code.not_coordinator})


@dataclass(frozen=True, slots=True)
class GroupRounds:
    """Of rounds a second apart: medians, the slowest, and what all of them asked, by request."""

    groups: int
    places: int
    changed: int
    rounds: int
    first_s: float
    round_s: float
    slowest_s: float
    cores: float
    brokers_cores: float
    commits: float
    requests: float
    wrong: int

    @property
    def bounded(self) -> bool:
        """Whether rounds are quick and cheap, and every place arrived."""
        return self.round_s < ROUND_S_MAX and self.cores < CORES_MAX and self.wrong == 0

    def sentence(self) -> str:
        """Figures with their bounds."""
        return (
            f"{self.groups} groups, {self.places} places, {self.changed} changed a round: {self.round_s:.2f} s"
            f" (bound {ROUND_S_MAX:.0f}), the slowest {self.slowest_s:.2f} s, {self.cores:.2f} cores ({CORES_MAX});"
            f" {self.requests:,.0f} requests a round, {self.commits:,.0f} of them commits; brokers"
            f" {self.brokers_cores:.2f} cores; the first round {self.first_s:.1f} s; {self.wrong} places wrong"
        )


def run_groups_bench(
    groups: int = GROUPS,
    partitions: int = PARTITIONS,
    rounds: int = ROUNDS,
    seed: int = 1,
    say: Callable[[str], None] = print,
) -> GroupRounds:
    """Two clusters of one broker; a log on either side, since what is measured is the groups alone."""
    with (
        LabCluster("east", heap_mb=512) as east,
        LabCluster("west", heap_mb=512) as west,
        tempfile.TemporaryDirectory(prefix="twinshore-bench-") as folder,
        open_store(f"sqlite:///{folder}/store.db") as store,
    ):
        for lab in (east, west):
            lab.create_topic(TOPIC, partitions=partitions)
            _fill(lab.cluster, partitions)
        settings = parse_settings(_settings(Path(folder), east, west), name="bench", env={})
        (link,) = settings.links
        stage = _Stage(link, settings, store, groups, partitions, random.Random(seed))
        brokers = [ProcessTree(broker.child.identity.pid) for lab in (east, west) for broker in lab.brokers]
        try:
            return stage.measure(rounds, brokers, say)
        finally:
            stage.close()


class _Stage:
    """Rounds of a link, and somebody who reads on at the source between them."""

    def __init__(
        self, link: Link, settings: Settings, store: Store, groups: int, partitions: int, chance: random.Random
    ) -> None:
        self._chance = chance
        self._rounds = GroupSync(link, settings, store)
        self._source = KafkaCluster(self._rounds.source.cluster)
        self._readers = ConsumerGroups(self._source)
        self.places: dict[str, dict[TopicPartitionTuple, CommittedOffset]] = {
            f"reader-{number}": {(TOPIC, part): CommittedOffset(0) for part in range(partitions)}
            for number in range(groups)
        }
        here, there = (
            one.metadata([TOPIC]).topics[TOPIC].topic_id.hex() for one in (self._rounds.source, self._rounds.target)
        )
        store.twins.save([TwinRow(link.name, TOPIC, part, here, there, 0, 0, 1) for part in range(partitions)])

    def close(self) -> None:
        self._readers.close()
        self._source.close()
        self._rounds.close()

    def measure(self, rounds: int, brokers: list[ProcessTree], say: Callable[[str], None]) -> GroupRounds:
        total = sum(len(ours) for ours in self.places.values())
        changed = max(1, int(total * CHANGED_PART))
        self._commit(self.places)
        first_s = self._settled().took_s
        say(f"{len(self.places)} groups with {total} places are on both sides, the first round took {first_s:.1f} s")
        took: list[float] = []
        asked: Counter[str] = Counter()
        cores: list[float] = []
        theirs = commits = 0.0
        for _ in range(rounds):
            self._read_on(changed)
            begun_s, cpu_s = time.monotonic(), time.process_time()
            used_s = sum(one.cpu_s() for one in brokers)
            done = self._rounds.run(begun_s)
            spent_s = time.process_time() - cpu_s
            theirs += sum(one.cpu_s() for one in brokers) - used_s
            took.append(done.took_s)
            cores.append(spent_s / max(1.0, done.took_s))
            asked += done.asked
            commits += done.commits
        say(f"requests of {rounds} rounds: {dict(asked)}")
        return GroupRounds(
            len(self.places),
            total,
            changed,
            rounds,
            round(first_s, 2),
            round(statistics.median(took), 3),
            round(max(took), 3),
            round(statistics.median(cores), 3),
            round(theirs / rounds, 3),
            round(commits / rounds, 1),
            round(asked.total() / rounds, 1),
            self._wrong(),
        )

    def _settled(self) -> SyncRoundResult:
        """The round that brought everything; the first ones may find no coordinator yet."""
        for _ in range(20):
            done = self._rounds.run(time.monotonic())
            if done.commits:
                return done
            time.sleep(0.5)
        raise StageError(f"no group was committed: {done.told}")

    def _read_on(self, changed: int) -> None:
        fresh: dict[str, dict[TopicPartitionTuple, CommittedOffset]] = {}
        names = list(self.places)
        for _ in range(changed):
            name = self._chance.choice(names)
            where = self._chance.choice(list(self.places[name]))
            place = CommittedOffset(min(RECORDS, self.places[name][where].offset + 1))
            self.places[name][where] = place
            fresh.setdefault(name, {})[where] = place
        self._commit(fresh)

    def _commit(self, places: dict[str, dict[TopicPartitionTuple, CommittedOffset]]) -> None:
        names = list(places)
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            deadline_s = time.monotonic() + 30
            while some:
                by_node: dict[int, dict[str, dict[TopicPartitionTuple, CommittedOffset]]] = {}
                for name, node in self._readers.coordinators(some).items():
                    by_node.setdefault(node, {})[name] = places[name]
                answers = self._readers.commit(by_node)
                codes = Counter(code for answer in answers.values() for code in answer.values())
                if set(codes) - _COMING - {0}:
                    raise StageError(f"the source refused commits: {codes}")
                # A new cluster's coordinators take a moment until they have read their logs.
                some = [name for name in some if name not in answers or any(answers[name].values())]
                if some and time.monotonic() > deadline_s:
                    raise StageError(f"the source has no coordinator for {len(some)} groups: {codes}")

    def _wrong(self) -> int:
        """Places that are not the source's with the mark of the link."""
        target = self._rounds.target_groups
        listed = target.listed().groups
        wanted: dict[int, dict[str, None]] = {}
        for name in self.places:
            wanted.setdefault(listed[name].coordinator, {})[name] = None
        found, _ = target.places(wanted, {})
        return sum(
            found[name].places.get(where) != place._replace(metadata=COMMIT_MARK)
            for name, ours in self.places.items()
            for where, place in ours.items()
        )


def _settings(folder: Path, east: LabCluster, west: LabCluster) -> str:
    lines = ["[store]", f'url = "sqlite:///{folder}/store.db"']
    for lab in (east, west):
        lines += [f"[clusters.{lab.name}]", f"bootstrap = {list(lab.bootstrap)}"]
    return "\n".join([*lines, '[links."east->west"]']) + "\n"


def _fill(cluster: Cluster, partitions: int) -> None:
    producer = Producer({**client_settings(cluster), "linger.ms": 50})
    for number in range(RECORDS):
        for part in range(partitions):
            producer.produce(TOPIC, b"%d" % number, partition=part)
        producer.poll(0)
    if producer.flush(60):
        raise StageError("records were not acknowledged within 60 s")


def main() -> int:
    """One line of JSON last; 1 when a bound is passed."""
    found = run_groups_bench(say=lambda line: print(line, file=sys.stderr, flush=True))
    print(found.sentence(), file=sys.stderr)
    print(json.dumps({"bench": "groups", "bounded": found.bounded} | asdict(found)))
    return 0 if found.bounded else 1


if __name__ == "__main__":
    sys.exit(main())
