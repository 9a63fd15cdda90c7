"""What clients were acknowledged in the demo, accounted for: each record is on both sides, or was saved from the lost
one. A saved record whose producer asked again is in both places, and counts once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Message

from twinshore.lab.errors import LabError
from twinshore.switch.hands.rescue import read_origin, read_saved

# When its producer made it, key and value: a producer that asks again changes none of them.
Identity = tuple[int, bytes | str | None, bytes | str | None]


@dataclass(frozen=True, slots=True)
class Account:
    """`again`: of those that were saved, how many stand on both sides too."""

    acknowledged: int
    on_both: int
    saved: int
    again: int

    def sentence(self) -> str:
        """LabError where it does not come out even."""
        found = self.on_both + self.saved - self.again
        if found != self.acknowledged:
            raise LabError(f"{self.acknowledged} records were acknowledged, {found} are found: {self}")
        more = f", {self.saved:,} more were saved from east" if self.saved else ""
        twice = f", {self.again:,} of which their producers sent again" if self.again else ""
        return f"acknowledged: {self.acknowledged:,} records; {self.on_both:,} are on both sides{more}{twice}"


class Rescued:
    """The records that a fail-back saved: the writers of the demo write no two alike to a topic in one moment."""

    def __init__(self, folder: Path) -> None:
        self._left: dict[str, set[Identity]] = {}
        self.count = self.again = 0
        for path in sorted(folder.glob("*.jsonl")) if folder.exists() else ():
            topic = self._left.setdefault(read_origin(path).topic, set())
            for one in read_saved(path):
                topic.add((one.record.timestamp, one.record.key, one.record.value))
                self.count += 1

    def listener(self, topic: str) -> Callable[[Message], None]:
        """Hears every record that is on both sides."""
        left = self._left.get(topic, set())

        def hear(message: Message) -> None:
            record = message.timestamp()[1], message.key(), message.value()
            if record in left:
                left.remove(record)
                self.again += 1

        return hear
