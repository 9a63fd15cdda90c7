"""What all have in common that do each deed of a switch, and undo it, by a separate hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twinshore.switch.decision import Outcome
from twinshore.switch.deeds import Deed
from twinshore.switch.record import Record, State


class ByDeed:
    """Each has two tables of its own: by whom a deed is done, and by whom it is undone."""

    _doing: Mapping[Deed, Callable[[Record], Outcome]]
    _undoing: Mapping[Deed, Callable[[Record], Outcome]]

    def once(self, record: Record) -> Outcome:
        """The deed that is due, or its undoing, as far as it goes now."""
        undo = record.state is State.TURNING_BACK
        return (self._undoing if undo else self._doing)[record.deed](record)
