"""Which writes are of protected topics, and what is refused of them before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.produce import ProduceRequest
from twinshore.protection.core.model import ReadEnd
from twinshore.protection.core.records import TopicProtection


class ProtectedPart(NamedTuple):
    """A partition of a Produce request. `span`: its last offset less its first."""

    partition: TopicPartition
    span: int
    has_producer: bool


class ProtectedParts(NamedTuple):
    """The parts of a request whose response waits for the twins. `version`: of the response."""

    parts: tuple[ProtectedPart, ...]
    timeout_ms: int
    version: int


class Protection(Protocol):
    """What is known of protected topics."""

    @property
    def levels(self) -> Mapping[str, TopicProtection]:
        """Protections by topic, as operators set them."""

    def refusal(self, topic: str, partitions: Iterable[int]) -> Code | None:
        """Returns the error for a write that is not to be sent; None to send it."""

    def hold(self, partitions: Sequence[TopicPartition]) -> CommitHold:
        """A transaction that wrote there is about to be committed."""

    def protected_partitions(self) -> list[TopicPartition]:
        """Returns all that are known."""

    @property
    def reads_both(self) -> Collection[str]:
        """Topics whose consumers are shown what both sides have."""

    def read_end(self, partition: TopicPartition, cluster: str) -> ReadEnd | None:
        """Returns what consumers are shown at a cluster; None: all."""

    def awaits(self, partition: TopicPartition) -> None:
        """A consumer lacks records that the home has."""

    def note_mixing(self, topics: Iterable[str], client_id: str) -> None:
        """The client writes to these topics, and on the same connection to topics without a protection."""


class CommitHold(Protocol):
    """`code`: why the commit is not confirmed, once `wait` is over."""

    code: Code

    def wait(self, done: Callable[[], None]) -> None:
        """The transaction is complete at home; wait for the twins."""

    def close(self) -> None: ...


class NothingHeld:
    code = Code.none

    def wait(self, done: Callable[[], None]) -> None:
        done()

    def close(self) -> None:
        pass


class NoProtection:
    """Of a process that holds no responses."""

    levels: Mapping[str, TopicProtection] = {}
    reads_both: Collection[str] = ()

    def refusal(self, topic: str, partitions: Iterable[int]) -> Code | None:  # noqa: ARG002
        return None

    def hold(self, partitions: Sequence[TopicPartition]) -> CommitHold:  # noqa: ARG002
        return NothingHeld()

    def protected_partitions(self) -> list[TopicPartition]:
        return []

    def read_end(self, partition: TopicPartition, cluster: str) -> ReadEnd | None:  # noqa: ARG002
        return None

    def awaits(self, partition: TopicPartition) -> None:
        pass

    def note_mixing(self, topics: Iterable[str], client_id: str) -> None:
        pass


def watched_partitions(asked: ProduceRequest, protection: Protection) -> dict[str, list[int]]:
    """Returns the partitions of topics that depend on twins, of those that the request writes to."""
    found: dict[str, list[int]] = {}
    for one in asked.batches:
        if (level := protection.levels.get(str(one.topic))) is not None and level.watches:
            found.setdefault(str(one.topic), []).append(one.partition)
    return found


def refusal_of(partitions: Mapping[str, Sequence[int]], protection: Protection) -> Code | None:
    """Returns the first error; a request is refused whole, since its response is one."""
    codes = (protection.refusal(topic, numbers) for topic, numbers in partitions.items())
    return next((code for code in codes if code is not None), None)
