"""Which topics of one cluster `twinshore.twins` calls twins: the lines of all links there, as the log goes on. Pure.

Strangers may write to that topic: what is not a line of this form is passed over. A line counts for the topic of this
id alone, so a line of a topic that was deleted does not count for another one of that name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from twinshore.wire.note_text import KEY_BYTES_MAX, json_or_none

LINES_MAX = 200_000
_ID = re.compile("[0-9a-f]{32}")


@dataclass(slots=True)
class TwinLog:
    """`ids` of twins, in hex, by their lines' keys."""

    ids: dict[bytes, str] = field(default_factory=dict)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """One line more."""
        match json_or_none(key, KEY_BYTES_MAX):
            case ["twin", str(_), str(_), str(_), int(_)] if key is not None:
                match json_or_none(value):
                    case {"target": str(target)} if _ID.fullmatch(target):
                        if key in self.ids or len(self.ids) < LINES_MAX:
                            self.ids[key] = target
                    case _:
                        self.ids.pop(key, None)
            case _:
                pass

    def twins(self) -> frozenset[str]:
        """The ids of topics that are twins."""
        return frozenset(self.ids.values())
