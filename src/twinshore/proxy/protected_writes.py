"""Holds the responses to writes of protected topics until the twins have the records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.produce import ProduceResponse
from twinshore.protection.keeper import GateKeeper
from twinshore.proxy.core.protected_topics import ProtectedParts

HOLD_S_MAX: Final = 15.0


def hold_s(timeout_ms: int) -> float:
    """Returns how long a response is held: the client must hear of it before it gives up."""
    return min(HOLD_S_MAX, timeout_ms / 2000)


class ProtectedWrite:
    """One Produce request. `done` gets the response once all its partitions are decided."""

    def __init__(self, keeper: GateKeeper, protected: ProtectedParts) -> None:
        self._keeper, self._parts = keeper, protected.parts
        self._codes: dict[TopicPartition, Code] = {}
        self._response: ProduceResponse | None = None
        self._done: Callable[[ProduceResponse], None] = lambda _: None
        self._numbers = [
            keeper.sent(
                part.partition,
                hold_s(protected.timeout_ms),
                partial(self._decided, part.partition),
                has_producer=part.has_producer,
            )
            for part in protected.parts
        ]

    def failed(self) -> None:
        """The connection to the broker or to the client is gone."""
        for part, number in zip(self._parts, self._numbers, strict=True):
            self._keeper.failed(part.partition, number)

    def answered(self, response: ProduceResponse, done: Callable[[ProduceResponse], None]) -> None:
        self._response, self._done = response, done
        found = {TopicPartition(str(one.topic), one.partition): one for one in response.appended}
        for part, number in zip(self._parts, self._numbers, strict=True):
            one = found.get(part.partition)
            if one is None or one.error:
                self._keeper.failed(part.partition, number)
                self._codes.setdefault(part.partition, Code.NONE)
            else:
                self._keeper.appended(part.partition, number, one.base_offset + part.span)
        self._finish_if_decided()

    def _decided(self, partition: TopicPartition, code: Code) -> None:
        self._codes[partition] = code
        self._finish_if_decided()

    def _finish_if_decided(self) -> None:
        response = self._response
        if response is None or len(self._codes) < len(self._parts):
            return
        self._response = None

        refused = {partition: code for partition, code in self._codes.items() if code is not Code.NONE}
        appended = [
            one._replace(error=int(code), base_offset=-1, message=None)
            if (code := refused.get(TopicPartition(str(one.topic), one.partition)))
            else one
            for one in response.appended
        ]
        self._done(response._replace(appended=appended))
