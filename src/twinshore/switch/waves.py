"""Many topics move in waves, each a separate switch: which topics go together, and what is left. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from twinshore.fleet.sentences import counted
from twinshore.switch.record import Record, State

Wave = tuple[str, ...]


def waves_of(topics: Iterable[str], together: Iterable[Iterable[str]], size: int) -> tuple[Wave, ...]:
    """In the order of names. Topics of one of the sets `together`, such as those of a group, are in one wave, also
    where that makes it larger than `size`."""
    leader = {topic: topic for topic in sorted(set(topics))}

    def led_by(topic: str) -> str:
        while leader[topic] != topic:
            leader[topic] = leader[leader[topic]]
            topic = leader[topic]
        return topic

    for some in together:
        known = sorted(topic for topic in set(some) if topic in leader)
        for topic in known[1:]:
            first, other = sorted((led_by(known[0]), led_by(topic)))
            leader[other] = first
    flocks: dict[str, list[str]] = {}
    for topic in leader:
        flocks.setdefault(led_by(topic), []).append(topic)
    waves: list[Wave] = []
    open_wave: list[str] = []
    for flock in flocks.values():
        if open_wave and len(open_wave) + len(flock) > size:
            waves.append(tuple(open_wave))
            open_wave = []
        open_wave += flock
    return (*waves, tuple(open_wave)) if open_wave else tuple(waves)


@dataclass(frozen=True, slots=True)
class Waves:
    """A plan of waves as its switches tell it, newest of them `last`: what moved, what fell, what is left."""

    id: str
    last: Record
    done: int
    moved: Wave
    left: tuple[Wave, ...]

    @property
    def over(self) -> bool:
        """Whether nothing is to be gone on with: all is done, or a wave has turned back."""
        return self.last.ended and (not self.left or self.last.state is State.TURNED_BACK)

    def sentence(self) -> str:
        """How far it has come."""
        one, count = self.last, self.last.wave + len(self.left)
        begun = f"{self.id[:8]}  {self.done} of {counted(count, 'wave')} done"
        begun += f", {counted(len(self.moved), 'topic')} at home on {one.new}"
        topics = counted(sum(len(wave) for wave in self.left), "topic")
        if one.state is State.TURNED_BACK:
            return f"{begun}; wave {one.wave} turned back, {topics} behind it left on {one.old}"
        if not one.ended:
            return f"{begun}; wave {one.wave} is {one.state}, with {topics} behind it"
        if self.left:
            return f"{begun}; {topics} left: `twinshore switch resume` goes on"
        return begun


def plans_in(records: Iterable[Record]) -> list[Waves]:
    """Of all switches, the newest first, those that are waves; the newest plan first."""
    found: dict[str, Waves] = {}
    for one in records:
        if not one.plan:
            continue
        known = found.setdefault(one.plan, Waves(one.plan, one, 0, (), one.left))
        if one.state is State.DONE:
            found[one.plan] = replace(known, done=known.done + 1, moved=(*one.names(), *known.moved))
    return list(found.values())


def as_wave(record: Record, plan: str, number: int, left: Sequence[Wave]) -> Record:
    """This switch as a wave of the plan; `left` come behind it."""
    return replace(record, plan=plan, wave=number, left=tuple(left))
