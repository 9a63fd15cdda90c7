"""Puts one question to the leaders of many partitions, and again where a leader has moved or does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, kafka_error
from twinshore.kafka.metadata import NO_LEADER, ClusterMetadata, TopicMetadata
from twinshore.kafka.patience import Patience, may_pass
from twinshore.kafka.questions import Wanted

Value = TypeVar("Value")
EACH_TIMES = 2


@dataclass(frozen=True, slots=True)
class Question(Generic[Value]):
    """`what` names it in errors, `right` is what it needs on the topic; `ask` gives code and value by partition."""

    what: str
    right: str
    ask: Callable[[Connection, Sequence[Wanted]], dict[NamedPartition, tuple[int, Value]]]


@dataclass(frozen=True, slots=True)
class Leaders:
    """`metadata` looks up topics, anew when the second argument is true; `meet` lends a connection to a node and
    `part` is told when that connection failed."""

    place: str
    patience: Patience
    metadata: Callable[[list[str], bool], ClusterMetadata]
    meet: Callable[[int], Connection]
    part: Callable[[int], None]

    def ask(self, parts: Iterable[NamedPartition], question: Question[Value]) -> dict[NamedPartition, Value]:
        """All or nothing: the first partition that cannot be answered for is a KafkaError."""
        found: dict[NamedPartition, Value] = {}
        pending = list(dict.fromkeys(parts))
        started = self.patience.clock()
        failures = 0
        with self.patience.errand():
            while pending:
                try:
                    failed = self._ask_once(pending, question, found, refresh=failures > 0)
                except KafkaError as error:
                    failed = dict.fromkeys(pending, error)
                for refusal in failed.values():
                    if not may_pass(refusal):
                        raise refusal
                pending = [named for named in pending if named not in found]
                if pending:
                    failures += 1
                    self.patience.pause(question.what, failed[pending[0]], failures, started)
        return found

    def each(
        self, parts: Iterable[NamedPartition], question: Question[Value]
    ) -> tuple[dict[NamedPartition, Value], dict[NamedPartition, KafkaError]]:
        """The answers that can be had now, and why the others cannot. A partition without an answer is asked for
        once more, with fresh metadata; nothing waits longer for it. KafkaError where no broker tells who leads what."""
        found: dict[NamedPartition, Value] = {}
        failed: dict[NamedPartition, KafkaError] = {}
        pending = list(dict.fromkeys(parts))
        with self.patience.errand():
            for times in range(EACH_TIMES):
                if pending:
                    failed |= self._ask_once(pending, question, found, refresh=times > 0)
                pending = [named for named in pending if named not in found and may_pass(failed[named])]
        return found, {named: error for named, error in failed.items() if named not in found}

    def _ask_once(
        self,
        pending: list[NamedPartition],
        question: Question[Value],
        found: dict[NamedPartition, Value],
        *,
        refresh: bool,
    ) -> dict[NamedPartition, KafkaError]:
        """Adds what was answered to `found`; returns the failures."""
        routes, failed = self._route(pending, question, refresh=refresh)
        for leader, wanted in routes.items():
            try:
                answers = question.ask(self.meet(leader), wanted)
            except KafkaError as error:
                if may_pass(error):
                    self.part(leader)
                failed.update(dict.fromkeys((one.named for one in wanted), error))
                continue
            for one in wanted:
                answer = answers.get(one.named)
                if answer is None or answer[0]:
                    code = answer[0] if answer else Code.UNKNOWN_TOPIC_OR_PARTITION
                    failed[one.named] = self._failure(code, question, one.named)
                else:
                    found[one.named] = answer[1]
        return failed

    def _route(
        self, pending: list[NamedPartition], question: Question[Value], *, refresh: bool
    ) -> tuple[dict[int, list[Wanted]], dict[NamedPartition, KafkaError]]:
        seen = self.metadata(sorted({named.topic for named in pending}), refresh)
        routes: dict[int, list[Wanted]] = {}
        failed: dict[NamedPartition, KafkaError] = {}
        for named in pending:
            topic = seen.topics.get(named.topic)
            code = absence(topic, named.partition)
            if topic is None or code:
                failed[named] = self._failure(code, question, named)
                continue
            ours = topic.partitions[named.partition]
            if ours.leader == NO_LEADER:
                failed[named] = self._failure(Code.LEADER_NOT_AVAILABLE, question, named)
                continue
            routes.setdefault(ours.leader, []).append(Wanted(named, topic.topic_id, ours.leader_epoch))
        return routes, failed

    def _failure(self, code: int, question: Question[Value], named: NamedPartition) -> KafkaError:
        right = f"{question.right} on topic {named.topic}"
        return kafka_error(code, f"{self.place}: {question.what} of {named}", right=right)


def absence(topic: TopicMetadata | None, partition: int) -> int:
    """The code that says why the partition is not there; 0 when it is."""
    if topic is None:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    if topic.error:
        return topic.error
    return Code.NONE if 0 <= partition < len(topic.partitions) else Code.UNKNOWN_TOPIC_OR_PARTITION
