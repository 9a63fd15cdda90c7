"""What a broker believes is wanted of it, request by request. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from twinshore.wire.fetch import FetchPartition

SourceKey = tuple[bytes, int]


class FetchSession:
    """One incremental fetch session (KIP-227): only what changed is asked, so a thousand quiet partitions cost nothing.
    Remembers what the broker believes we want; `changes` says what to send so that it believes the right thing."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self._told: dict[SourceKey, FetchPartition] = {}

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

    def answered(self, session_id: int) -> None:
        """The broker took the request: the next one continues the session."""
        if session_id == 0:
            self.reset()
            return
        self.session_id = session_id
        self.epoch = self.epoch + 1 if self.epoch < 2**31 - 1 else 1

    def reset(self) -> None:
        """The next request opens a new session and names everything again."""
        self.session_id = 0
        self.epoch = 0
        self._told.clear()
