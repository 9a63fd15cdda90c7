"""Whatever befalls a spool, in any order: dice say what happens next, and a seed replays it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.client.spool.spooling import done, numbers, put, record, segments, taken
from twinshore.client.spool import Spool


class World:
    """Calls are kept, sent, given back, acknowledged in any order, come late, are marked; the process is killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._dice = folder, random.Random(seed)
        self.spool = Spool(folder, segment_bytes=800)
        self._owed: set[int] = set()  # kept and not acknowledged
        self._acked: set[int] = set()
        self._flying: list[int] = []
        self._straight: list[int] = []
        self._counter = 0

    def keep(self) -> None:
        count = self._dice.randint(1, 4)
        put(self.spool, *(record(self._counter + one) for one in range(count)))
        self._owed |= set(range(self._counter, self._counter + count))
        self._counter += count

    def straight(self) -> None:
        self._straight.append(self._counter)
        self._counter += 1

    def send(self) -> None:
        sent = numbers(taken(self.spool, most=self._dice.randint(1, 6)))
        assert sent == sorted(sent)
        assert not sent or sent[0] == min(self._owed - set(self._flying)), "the first that is owed, and no later one"
        self._flying += sent

    def ack(self) -> None:
        if self._flying:
            number = self._flying.pop(self._dice.randrange(len(self._flying)))
            self.spool.done("orders", number)
            self._owed.discard(number)
            self._acked.add(number)

    def back(self) -> None:
        for number in self._flying:
            self.spool.given_back("orders", number)
        self._flying = []

    def late(self) -> None:
        late = sorted(self._dice.sample(self._straight, self._dice.randint(0, len(self._straight))))
        if late:
            put(self.spool, *(record(number) for number in late))
        self._owed |= set(late)
        self._straight = []

    def mark(self) -> None:
        self.spool.tend(at_once=True)

    def kill(self) -> None:
        self.spool.close(mark=self._dice.random() < 0.5)
        self.spool = Spool(self._folder, segment_bytes=800)
        found = numbers(taken(self.spool))
        assert found == sorted(found)
        assert self._owed <= set(found) <= self._owed | self._acked, "nothing is lost, and nothing is made up"
        self._flying, self._straight, self._counter = found, [], max(self._counter, self.spool.next_number)
        self._owed |= set(found)
        self._acked -= self._owed
        self.back()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_befalls_it_nothing_is_lost_and_the_order_stands(tmp_path: Path, seed: int) -> None:
    dice, world = random.Random(-seed), World(tmp_path, seed)
    deeds = [world.keep, world.straight, world.send, world.ack] * 3 + [world.back, world.late, world.mark, world.kill]
    for _ in range(400):
        dice.choice(deeds)()
    world.back()
    done(world.spool, taken(world.spool))
    assert segments(tmp_path) == []
    world.spool.close()
