"""What a direction of a link asks of the clusters at its two ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.kafka.groups import Located
from twinshore.kafka.questions import OffsetKind
from twinshore.wire.group_places import GroupPlaces, Place, Where

ByCoordinator = Mapping[int, Mapping[str, Iterable[Where] | None]]


class Reader(Protocol):
    """Says where groups stand."""

    @property
    def name(self) -> str: ...

    def places(
        self, wanted: ByCoordinator, known: Mapping[str, GroupPlaces]
    ) -> tuple[dict[str, GroupPlaces], dict[int, KafkaError]]: ...


class ClusterGroups(Reader, Protocol):
    """A cluster's groups, as `kafka.groups.Groups` asks and commits them."""

    @property
    def asked(self) -> Counter[str]: ...

    def located(self, groups: Sequence[str]) -> Located: ...

    def commit(
        self, places: Mapping[int, Mapping[str, Mapping[Where, Place]]], still: Callable[[], bool] = ...
    ) -> dict[str, dict[Where, int]]: ...


class Logs(Protocol):
    """The cluster whose logs end somewhere."""

    def offsets_of_each(
        self, parts: Iterable[NamedPartition], which: OffsetKind
    ) -> tuple[dict[NamedPartition, int], dict[NamedPartition, KafkaError]]: ...
