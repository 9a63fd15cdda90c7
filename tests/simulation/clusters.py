"""Both clusters as a task can see them: nodes up or not, topics with ids, metadata that may be a moment old."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.fetch_sessions import Key
from tests.simulation.schedule import Schedule
from tests.simulation.source_broker import SourceBroker
from tests.simulation.source_log import SourceLog, Style
from tests.simulation.twin_log import TwinLog
from twinshore.config.model import TopicPartition
from twinshore.replication.task.core.partition import PartitionLeaders

if TYPE_CHECKING:
    from tests.simulation.pump_model import PumpModel

NODES = (1, 2, 3)
STALE_S = 0.5  # for so long brokers may tell of the leader before


@dataclass(slots=True)
class Pair:
    """A source partition and its twin. `excuses`: the incidents that something which was done to it may end in."""

    named: TopicPartition
    source: SourceLog
    twin: TwinLog
    excuses: set[str] = field(default_factory=set)
    stale: dict[str, tuple[float, int, int]] = field(default_factory=dict)
    quiet_until_s: float = 0.0  # its producers write nothing
    beheaded: bool = False  # somebody deleted records of the twin

    def moved(self, side: str, until_s: float) -> None:
        """To be called before a leader moves."""
        log = self.source if side == "source" else self.twin
        self.stale[side] = (until_s, log.leader, log.epoch)


class Clusters:
    def __init__(
        self, schedule: Schedule, styles: dict[str, tuple[int, Style]], *, copies: tuple[int, int], expiry_ms: int
    ) -> None:
        self.schedule = schedule
        self.copies, self.expiry_ms = copies, expiry_ms
        self.ids = 0
        self.topic_ids: dict[tuple[str, str], bytes] = {}
        self.pairs: dict[TopicPartition, Pair] = {}
        self.logs: dict[Key, SourceLog] = {}
        self.down: dict[tuple[str, int], float] = {}
        self.slow_s: dict[tuple[str, int], float] = {}
        # Brokers of the target that take no markers, until when, and what they answer.
        self.unmarking: dict[int, tuple[float, int]] = {}
        self.skew_ms = 0
        # Who last wrote each partition.
        self.writers: dict[TopicPartition, PumpModel] = {}
        self.errand_fails = 0.0  # how often a question, or a batch, meets a passing error
        self.store_fails = 0.0
        for topic, (count, style) in styles.items():
            for side in ("source", "target"):
                self.topic_ids[side, topic] = self.new_id()
            for number in range(count):
                named = TopicPartition(topic, number)
                source = self.new_source(named, style)
                self.pairs[named] = Pair(named, source, self.new_twin(named, source))
        self.brokers = {node: SourceBroker(node, self.logs, schedule.chance) for node in NODES}

    def new_id(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")

    def new_source(self, named: TopicPartition, style: Style) -> SourceLog:
        chance = self.schedule.chance
        topic_id = self.topic_ids["source", named.topic]
        log = SourceLog(topic_id, named.partition, tuple(chance.sample(NODES, self.copies[0])), chance, style)
        self.logs[topic_id, named.partition] = log
        return log

    def new_twin(self, named: TopicPartition, source: SourceLog) -> TwinLog:
        chance = self.schedule.chance
        nodes = tuple(chance.sample(NODES, self.copies[1]))
        topic_id = self.topic_ids["target", named.topic]
        return TwinLog(
            source, str(named), topic_id, nodes, chance, expiry_ms=self.expiry_ms, in_sync_min=len(nodes) // 2 + 1
        )

    @property
    def broker_ms(self) -> int:
        """The target brokers' wall clock."""
        return self.schedule.now_ms + self.skew_ms

    def up(self, side: str, node: int) -> bool:
        return self.down.get((side, node), 0.0) <= self.schedule.now_s

    def refuses_markers(self, node: int) -> int:
        """The code that it answers them with now; 0: none."""
        until_s, code = self.unmarking.get(node, (0.0, 0))
        return code if self.schedule.now_s < until_s else 0

    def leads(self, side: str, pair: Pair) -> bool:
        """Whether the partition has a leader that answers."""
        log = pair.source if side == "source" else pair.twin
        return self.up(side, log.leader)

    def route(self, named: TopicPartition, order_ids: tuple[bytes, bytes]) -> PartitionLeaders:
        """As `scout` makes it out of both clusters' metadata."""
        pair = self.pairs[named]
        for side, wanted in (("source", order_ids[0]), ("target", order_ids[1])):
            if self.topic_ids[side, named.topic] != wanted:
                return PartitionLeaders(recreated=side)
        source, epoch = self._leader("source", pair)
        target, target_epoch = self._leader("target", pair)
        return PartitionLeaders(source, epoch, target, target_epoch=target_epoch)

    def _leader(self, side: str, pair: Pair) -> tuple[int, int]:
        until_s, node, epoch = pair.stale.get(side, (0.0, 0, 0))
        if self.schedule.now_s < until_s and self.schedule.odds(0.5):
            return node, epoch
        log = pair.source if side == "source" else pair.twin
        return (log.leader, log.epoch) if self.up(side, log.leader) else (-1, log.epoch)
