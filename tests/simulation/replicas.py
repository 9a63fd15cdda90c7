"""A partition with replicas: leader, followers, log end and high watermark, leader epochs, elections that lose or not.

Followers hold a prefix of the leader's log, so one list of entries and an end for each of them are enough.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from typing import NamedTuple

from twinshore.kafka.protocol.record_batch import BatchHeader, split_batches


class Entry(NamedTuple):
    """A batch in the log. `data` are the bytes a fetch brings; `marker` tells a control batch."""

    base: int
    end: int
    data: bytes
    producer_id: int
    producer_epoch: int
    first: int
    last: int
    timestamp: int
    leader_epoch: int
    marker: bool = False
    coordinator_epoch: int = -1


class ReplicatedLog:
    """`heard`: the high watermark as each follower last heard it; one that is elected begins there."""

    def __init__(self, nodes: tuple[int, ...], chance: random.Random) -> None:
        self.nodes = nodes
        self.chance = chance
        self.leader = chance.choice(nodes)
        self.epoch = 0
        self.epoch_start = 0
        self.epoch_starts: list[tuple[int, int]] = [(0, 0)]
        self.entries: list[Entry] = []
        self.start = 0
        self.floor = 0  # the log's end while it holds nothing
        self.high = 0
        self.ends: dict[int, int] = dict.fromkeys(nodes, 0)
        self.heard: dict[int, int] = dict.fromkeys(nodes, 0)
        self.in_sync: set[int] = set(nodes)
        self.versions = 0  # changes whenever the high watermark or the leader does

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else self.floor

    def index(self, offset: int) -> int:
        """Of the first entry that ends above `offset`."""
        return bisect_right(self.entries, offset, key=lambda entry: entry.end)

    def batch(self, offset: int) -> tuple[memoryview, BatchHeader] | None:
        """What covers this offset; None where that cannot be read."""
        at = self.index(offset)
        if at >= len(self.entries) or not self.start <= offset < self.high or self.entries[at].base > offset:
            return None
        return next(iter(split_batches(memoryview(self.entries[at].data))), None)

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.ends[self.leader] = entry.end
        self.advance()

    def advance(self) -> None:
        """The high watermark is the lowest end in sync; within a leader's time it only rises."""
        high = min(self.ends[node] for node in self.in_sync)
        if high > self.high:
            self.high = high
            self.versions += 1

    def replicate(self, node: int, *, whole: bool) -> None:
        """A follower fetches: all that is there, or only the next entries."""
        if node == self.leader:
            return
        end = self.ends[node]
        if end < self.end:
            last = len(self.entries) - 1
            at = self.index(end)
            # Retention may have emptied the leader's log: its followers go on where it ends.
            self.ends[node] = (
                self.entries[last if whole else self.chance.randint(at, last)].end if last >= 0 else self.end
            )
        self.heard[node] = max(self.heard[node], min(self.high, self.ends[node]))
        if self.ends[node] >= max(self.high, self.epoch_start):
            self.in_sync.add(node)
        self.advance()

    def drop_from_sync(self, node: int) -> None:
        """The leader gives up on a follower; the rest may then confirm without it."""
        if node != self.leader and node in self.in_sync:
            self.in_sync.discard(node)
            self.advance()

    def elect(self, node: int) -> int:
        """Makes `node` the leader, in sync or not. Returns where its log ended: what lay above is lost, and where that
        is below the old high watermark, it had been acknowledged (test_an_unclean_leader_loses_what_was_acknowledged).
        """
        clean = node in self.in_sync
        lost_from = min(self.end, self.ends[node])
        self.leader, self.epoch = node, self.epoch + 1
        while self.entries and self.entries[-1].end > lost_from:
            self.entries.pop()
        if not self.entries:
            self.floor = lost_from
        while self.epoch_starts and self.epoch_starts[-1][1] >= lost_from and len(self.epoch_starts) > 1:
            self.epoch_starts.pop()
        self.epoch_starts.append((self.epoch, lost_from))
        self.epoch_start = lost_from
        self.ends = {other: min(end, lost_from) for other, end in self.ends.items()}
        self.ends[node] = lost_from
        self.heard = {other: min(high, lost_from) for other, high in self.heard.items()}
        if not clean:
            self.in_sync = {node}
        # A clean leader may have heard of less than was acknowledged; it learns the rest as its followers fetch.
        self.high = self.heard[node]
        self.versions += 1
        self.advance()
        return lost_from

    def cut(self, offset: int) -> None:
        """Retention or DeleteRecords: the log begins here now, perhaps inside a batch."""
        self.start = max(self.start, min(offset, self.high))
        while self.entries and self.entries[0].end <= self.start:
            self.floor = self.entries.pop(0).end

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and where it ended: test_an_epoch_has_an_end."""
        for number, (found, _) in enumerate(self.epoch_starts):
            if found > epoch:
                if number == 0:
                    return -1, -1
                return self.epoch_starts[number - 1][0], self.epoch_starts[number][1]
        return self.epoch_starts[-1][0], self.end
