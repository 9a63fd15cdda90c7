"""What makes a record of one side that of the other. Pure."""

from __future__ import annotations

from typing import NamedTuple

from twinshore.wire.records import Headers


class Content(NamedTuple):
    """What makes a record the same one on both sides."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class Dated(NamedTuple):
    """A record's content and its time stamp; None where its own broker gave it that."""

    content: Content
    timestamp_ms: int | None

    def copied_from(self, theirs: Dated) -> bool:
        """Whether this may be the copy of that record: copiers keep time stamps where the copy's broker lets them."""
        return self.content == theirs.content and self.timestamp_ms in (None, theirs.timestamp_ms)
