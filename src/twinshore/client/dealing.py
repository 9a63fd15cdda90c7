"""What an application's `on_assign`, `on_revoke` and `on_lost` are given: always the consumer that they were given to,
never one of librdkafka's, of which there is one for each cluster. So that functions which were written for one of those
go on as they are, it has their calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from confluent_kafka import TopicPartition

Ours = TypeVar("Ours")
Told = Callable[[Ours, list[TopicPartition]], Any]
Dealt = Callable[[list[TopicPartition]], Any]


class Dealing:
    """Calls of a Consumer that are made within these functions alone. Elsewhere it is the group that deals out."""

    _dealt: list[TopicPartition] | None = None  # while `on_assign` is called

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Within `on_assign`: of what is dealt out these are read, from the offsets that they have. It may be left out:
        what has been given an offset is read from there."""
        if self._dealt is None:
            raise RuntimeError("only within on_assign: elsewhere it is the group that deals partitions out")
        self._dealt[:] = partitions

    incremental_assign = assign

    def unassign(self) -> None:
        """Nothing is to be done: what is taken away is given up once `on_revoke` or `on_lost` has returned."""

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """As `unassign`."""

    def _telling(self, told: Told[Any] | None, *, deals: bool = False) -> Dealt | None:
        """This function of the application's, called with this consumer. What it does with partitions that it is dealt
        is in the list that it was given."""
        if told is None:
            return None

        def tell(partitions: list[TopicPartition]) -> None:
            self._dealt = partitions if deals else None
            try:
                told(self, partitions)
            finally:
                self._dealt = None

        return tell
