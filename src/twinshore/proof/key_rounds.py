"""The keys of compacted twins in a round of proving: whose turn it is, the looks, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from twinshore.fleet import Link, NamedPartition
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.proof.borders import Side
from twinshore.proof.job import Run, run_bundles
from twinshore.proof.key_looks import Keys, due, incident_of, looked, marked, overtaken, retention_of, stands_ms
from twinshore.proof.values import Proven, Stretch, Way
from twinshore.service.clock import wall_ms
from twinshore.store import KeyLookRow, Store


@dataclass(frozen=True, slots=True)
class KeyRounds:
    """`store` None: nothing is remembered."""

    settings: Settings
    store: Store | None
    run: Run
    bytes_s: float
    tasks: int
    stopped: Callable[[], bool]

    def round(
        self, link: Link, sides: Sequence[Side], seen_ms: int, forced: Collection[NamedPartition]
    ) -> dict[NamedPartition, Keys]:
        """What is known of the keys of compacted sides, after looks at those whose turn it is and at the `forced` ones.
        Both sides' ends were asked for at `seen_ms` or later."""
        sides = [side for side in sides if side.way is Way.COMPACTED]
        if not sides:
            return {}
        retentions = self._retentions(link, {side.named.topic for side in sides})
        before = {(row.topic, row.partition): row for row in self.store.key_looks.of(link.name)} if self.store else {}
        found: dict[NamedPartition, Keys] = {}
        turn: list[Side] = []
        for side in sides:
            now_ms = wall_ms()
            old = before.get((side.named.topic, side.named.partition))
            row = marked(old, side, retentions[side.named.topic], seen_ms, now_ms)
            found[side.named] = Keys(row, stands_ms(row, side, now_ms))
            if side.named in forced or due(row, side, now_ms):
                turn.append(side)
        self._save([keys.row for keys in found.values()])
        self._look(link, turn, found)
        return found

    def _look(self, link: Link, turn: Sequence[Side], found: dict[NamedPartition, Keys]) -> None:
        source, target = (self.settings.cluster(name) for name in (link.source, link.target))
        wanted = [
            Stretch(source, target, side.named, side.twin, side.way, 0, 0, bytes_s=self.bytes_s, number=at, keys=True)
            for at, side in enumerate(turn)
        ]
        for answers in run_bundles(self.run, [[one] for one in wanted], self.tasks, self.stopped):
            for answer in answers:
                side = turn[answer.number]
                found[side.named] = _after(found[side.named], side, answer)
                if found[side.named].looked:
                    self._tell(link, found[side.named].row)

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


def _after(keys: Keys, side: Side, answer: Proven) -> Keys:
    if answer.trouble:
        return replace(keys, trouble=(f"its keys were not compared: {answer.trouble}", answer.hint))
    return replace(keys, row=looked(keys.row, side, answer, wall_ms()), looked=True, keys=answer.owed_keys)
