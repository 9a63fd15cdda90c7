"""What a broker believes is wanted of it, request by request, and how lately it said where a partition ends. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from twinshore.mirror.lane.level import NEVER, Level
from twinshore.wire.fetch import FetchPartition

SourceKey = tuple[bytes, int]


class FetchSession:
    """One incremental fetch session (KIP-227): only what changed is asked, so a thousand quiet partitions cost nothing.
    Remembers what the broker believes we want; `changes` says what to send so that it believes the right thing."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self._told: dict[SourceKey, FetchPartition] = {}
        # When the request was sent that is under way; and the one before, where that was answered whole.
        self.asked_s = self._before_s = NEVER
        # How many were answered, and with which of them a partition was last named.
        self._count = 0
        self._named: dict[SourceKey, int] = {}
        # Where the source ended, as a request was told that was sent then.
        self._ends: dict[SourceKey, Level] = {}

    def changes(
        self, wanted: Iterable[FetchPartition], unwanted: Iterable[SourceKey]
    ) -> tuple[list[FetchPartition], list[SourceKey]]:
        """What to put in the next request: partitions new or moved, and those to forget."""
        told = self._told
        # A broker adds what is asked before it removes what is forgotten: forgetting must not undo asking.
        forgotten = [key for key in unwanted if told.pop(key, None) is not None]
        asked = []
        for want in wanted:
            key = (want.topic_id, want.partition)
            if told.get(key) != want:
                told[key] = want
                self._named[key] = self._count
                asked.append(want)
        return asked, [key for key in forgotten if key not in told]

    def __len__(self) -> int:
        return len(self._told)

    def position(self, key: SourceKey) -> int:
        """From where the broker reads this partition as far as it was told; -1 while it is not asked for."""
        want = self._told.get(key)
        return want.position if want else -1

    def epoch_asked(self, key: SourceKey) -> int:
        """In which epoch of its leader this partition is asked for; -1 where none was named."""
        want = self._told.get(key)
        return want.leader_epoch if want else -1

    def level(self, key: SourceKey, at: int) -> Level | None:
        """When the source was last seen to end at this offset, by the answers before this one: it said so, or it was
        asked from there and left the partition out."""
        end = self._ends.get(key)
        if end is not None and end.at != at:
            return None
        if self._named.get(key, self._count) < self._count and self._before_s > NEVER:
            return Level(at, self._before_s)
        return end

    def told_end(self, key: SourceKey, at: int) -> None:
        """So the answer to the request that is under way says; -1: it says an error."""
        if at >= 0:
            self._ends[key] = Level(at, self.asked_s)
        else:
            self._ends.pop(key, None)
            self._named[key] = self._count + 1

    def answered(self, session_id: int, *, whole: bool = False) -> None:
        """The broker took the request: the next one continues the session. `whole`: it left nothing out that it had."""
        self._count += 1
        self._before_s = self.asked_s if whole else NEVER
        if session_id == 0:
            self.reset()
            return
        self.session_id = session_id
        self.epoch = self.epoch + 1 if self.epoch < 2**31 - 1 else 1

    def reset(self) -> None:
        """The next request opens a new session and names everything again."""
        self.session_id = 0
        self.epoch = 0
        self._before_s = NEVER
        for kept in (self._told, self._named, self._ends):
            kept.clear()
