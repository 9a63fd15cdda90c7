"""Holds the responses to writes of protected topics until the twins have the records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol import produce
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.protection.keeper import GateKeeper
from twinshore.proxy.core.model import Parts
from twinshore.proxy.core.protected_topics import ProtectedParts

HOLD_S_MAX: Final = 15.0


def hold_s(timeout_ms: int) -> float:
    """Returns how long a response is held: the client must hear of it before it gives up."""
    return min(HOLD_S_MAX, timeout_ms / 2000)


class HeldResponse:
    """The response to one Produce request, from the moment that the request is sent."""

    def __init__(self, keeper: GateKeeper, protected: ProtectedParts) -> None:
        self._keeper, self._protected = keeper, protected
        self._codes: dict[TopicPartition, Code] = {}
        self._response: produce.ProduceResponse | None = None
        self._done: Callable[[Parts], None] = lambda _: None
        self._writes = [
            keeper.sent(
                part.partition,
                hold_s(protected.timeout_ms),
                partial(self._decided, part.partition),
                has_producer=part.has_producer,
            )
            for part in protected.parts
        ]

    def give_up(self) -> None:
        """The client or its broker is gone."""
        for part, write in zip(self._protected.parts, self._writes, strict=True):
            self._keeper.failed(part.partition, write)

    def answered(self, body: Buffer, at: int, done: Callable[[Parts], None]) -> None:
        """Takes the broker's response. `done` gets what the client is told, once all partitions are decided."""
        self._response = produce.read_produce_response(memoryview(bytes(body)), at, self._protected.version)
        self._done = done
        found = {TopicPartition(str(one.topic), one.partition): one for one in self._response.appended}
        for part, write in zip(self._protected.parts, self._writes, strict=True):
            one = found.get(part.partition)
            if one is not None and not one.error:
                self._keeper.appended(part.partition, write, one.base_offset + part.span)
            else:
                self._keeper.failed(part.partition, write)
                self._codes.setdefault(part.partition, Code.none)
        self._finish_if_decided()

    def _decided(self, partition: TopicPartition, code: Code) -> None:
        self._codes[partition] = code
        self._finish_if_decided()

    def _finish_if_decided(self) -> None:
        response = self._response
        if response is None or len(self._codes) < len(self._protected.parts):
            return
        self._response = None
        appended = [self._told(one) for one in response.appended]
        self._done([produce.write_produce_response(self._protected.version, response._replace(appended=appended))])

    def _told(self, one: produce.ProducedPartition) -> produce.ProducedPartition:
        code = self._codes.get(TopicPartition(str(one.topic), one.partition), Code.none)
        return one if code is Code.none else one._replace(error=int(code), base_offset=-1, message=None)
