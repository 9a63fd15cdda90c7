"""The keys of compacted twins in a round of proving: whose turn it is, the looks, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from twinshore.fleet import Link, NamedPartition
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.proof.borders import PartitionLook
from twinshore.proof.job import RunBundle, run_bundles
from twinshore.proof.key_looks import Keys, due, incident_of, looked, marked, overtaken, retention_of, stands_ms
from twinshore.proof.planning import Wishes, stretch_of
from twinshore.proof.values import Proven, Way
from twinshore.service.clock import wall_ms
from twinshore.store import KeyLookRow, Store


@dataclass(frozen=True, slots=True)
class KeyRounds:
    """`store` None: nothing is remembered."""

    settings: Settings
    store: Store | None
    run: RunBundle
    bytes_s: float
    tasks: int
    stopped: Callable[[], bool]

    def round(
        self, link: Link, looks: Sequence[PartitionLook], seen_ms: int, forced: Collection[NamedPartition]
    ) -> dict[NamedPartition, Keys]:
        """What is known of the keys of compacted sides, after looks at those whose turn it is and at the `forced` ones.
        Both sides' ends were asked for at `seen_ms` or later."""
        looks = [look for look in looks if look.way is Way.COMPACTED]
        if not looks:
            return {}
        retentions = self._retentions(link, {look.named.topic for look in looks})
        before = {(row.topic, row.partition): row for row in self.store.key_looks.of(link.name)} if self.store else {}
        found: dict[NamedPartition, Keys] = {}
        turn: list[PartitionLook] = []
        for look in looks:
            now_ms = wall_ms()
            old = before.get((look.named.topic, look.named.partition))
            row = marked(old, look, retentions[look.named.topic], seen_ms, now_ms)
            found[look.named] = Keys(row, stands_ms(row, look, now_ms))
            if look.named in forced or due(row, look, now_ms):
                turn.append(look)
        self._save([keys.row for keys in found.values()])
        self._look(link, turn, found)
        return found

    def _look(self, link: Link, turn: Sequence[PartitionLook], found: dict[NamedPartition, Keys]) -> None:
        clusters = self.settings.cluster(link.source), self.settings.cluster(link.target)
        wishes = Wishes(bytes_s=self.bytes_s)
        wanted = [
            replace(stretch_of(look, clusters, wishes, 0, 0), number=at, keys=True) for at, look in enumerate(turn)
        ]
        for answers in run_bundles(self.run, [[one] for one in wanted], self.tasks, self.stopped):
            for answer in answers:
                look = turn[answer.number]
                found[look.named] = _after(found[look.named], look, answer)
                if found[look.named].looked:
                    self._tell(link, found[look.named].row)

    def _tell(self, link: Link, row: KeyLookRow) -> None:
        self._save([row])
        if self.store is None:
            return
        opened = self.store.ledger.rows(link.name, open_only=True)
        for number, came_to in overtaken(opened, {(row.link, row.topic, row.partition): row}):
            self.store.ledger.close(number, now_ms=wall_ms(), came_to=came_to)
        incident = incident_of(row)
        if incident is not None:
            self.store.ledger.add(incident, now_ms=wall_ms())

    def _save(self, rows: Sequence[KeyLookRow]) -> None:
        if self.store is not None:
            self.store.key_looks.save(rows)

    def _retentions(self, link: Link, topics: Collection[str]) -> dict[str, int]:
        source = KafkaCluster(self.settings.cluster(link.source))
        try:
            settings, _ = source.admin.readable_settings(sorted(topics))
        finally:
            source.close()
        values = {name: settings.get(name, {}).get("delete.retention.ms") for name in topics}
        return {name: retention_of(value.value if value else None) for name, value in values.items()}


def _after(keys: Keys, look: PartitionLook, answer: Proven) -> Keys:
    if answer.trouble:
        return replace(keys, trouble=(f"its keys were not compared: {answer.trouble}", answer.hint))
    return replace(keys, row=looked(keys.row, look, answer, wall_ms()), looked=True, keys=answer.owed_keys)
