"""A produce request that stands still on its way: what of it the broker has is not enough to read it."""

from __future__ import annotations

import time

from testkit.raw_writer import RawWriter
from twinshore.kafka.connection import Connection
from twinshore.kafka.protocol.framing import drop_sent
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.produce import PRODUCE_KEY, ProducedPartition, encode_produce, read_produce_response
from twinshore.kafka.protocol.record_batch import HEADER_BYTES, split_batches

# Longer than anything that happens before it is let go.
PATIENCE_S = 300.0


class Held:
    """A produce request of which half is sent, and the rest when `let_go` is called."""

    def __init__(self, link: RawWriter, records: int, sequence: int) -> None:
        self._line: Connection = link.kafka.dial(link.kafka.leader_of(link.partition))
        data = link.batch(records)
        ((_, header),) = split_batches(memoryview(data))
        stamped = header._replace(producer_id=link.producer_id, producer_epoch=link.epoch, base_sequence=sequence)
        batch = link.sealed(stamped, data[HEADER_BYTES:])
        self._version = self._line.handwritten_version(PRODUCE_KEY)
        body = b"".join(encode_produce(self._version, [(link.partition.topic, link.topic_id, [(0, b"", batch)])]))
        asked = self._line.hand_over("held").ask(PRODUCE_KEY, self._version, [body], time.monotonic() + PATIENCE_S)
        whole = b"".join(asked)
        self._rest = whole[len(whole) // 2 :]
        self._send(whole[: len(whole) // 2])

    def let_go(self) -> ProducedPartition:
        self._send(self._rest)
        found = self._line.finish(20.0)
        self._line.close()
        (answer,) = read_produce_response(found.view[found.position :], 0, self._version).appended
        return answer

    def _send(self, data: bytes) -> None:
        waiting: list[Buffer] = [memoryview(data)]
        while waiting:
            taken = self._line.transport.sendv(waiting)
            if taken > 0:
                drop_sent(waiting, taken)
