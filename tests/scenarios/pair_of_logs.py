"""The same topic on two real clusters, with records of one's own on either side, and what a proof says of them."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from typer.testing import CliRunner

from testkit.raw_writer import RawWriter
from tests.scenarios.mirror_rig import settings_text
from twinshore.cli.app import app, register_verbs
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.record_batch import Codec, Record, encode_batch
from twinshore.lab.cluster import LabCluster
from twinshore.proof.core.model import CompareMode, CompareRange, CompareResult
from twinshore.proof.prover import prove_all

AT = 317
COUNT = 600
FOR_EVER = {"retention.ms": "-1"}  # Their timestamps are years old.
names = itertools.count(1)

Pair = tuple[KafkaCluster, KafkaCluster]


@contextlib.contextmanager
def both(east: LabCluster, west: LabCluster) -> Iterator[Pair]:
    """Connections to both, until the block ends."""
    source, target = KafkaCluster(east.cluster), KafkaCluster(west.cluster)
    yield source, target
    source.close()
    target.close()


def log(count: int = COUNT) -> list[Record]:
    return [
        Record(n, 1_700_000_000_000 + n, b"key %d" % n, b"value %d of a record" % n, ((b"trace", b"%d" % n),))
        for n in range(count)
    ]


def write(kafka: KafkaCluster, topic: str, records: Sequence[Record], chance: random.Random, end: int = 0) -> None:
    """The records at their offsets, in batches of random sizes and codecs; markers take the offsets between."""
    writer = RawWriter(kafka, topic)
    position = at = 0
    while at < len(records) or position < end:
        hole = (records[at].offset if at < len(records) else end) - position
        if hole:
            assert writer.mark(0, times=hole) == 0
            position += hole
            continue
        most = chance.randint(1, 90)
        part = list(records[at : at + most])
        while part[-1].offset - part[0].offset >= len(part):
            part.pop()
        at += len(part)
        position += len(part)
        moved = [record._replace(offset=place) for place, record in enumerate(part)]
        answer = writer.send([encode_batch(moved, codec=chance.choice(list(Codec)))])
        assert answer.error == 0, answer


def in_order(records: Sequence[Record]) -> list[Record]:
    """The same, each right behind the one before."""
    return [record._replace(offset=place) for place, record in enumerate(records)]


def made(pair: Pair, source: Sequence[Record], target: Sequence[Record], topic: str = "") -> str:
    """A topic that holds these records on either side."""
    topic = topic or f"proof-{next(names)}"
    for kafka, records, seed in ((pair[0], source, 1), (pair[1], target, 2)):
        kafka.admin.create_topic(topic, partitions=1, replication_factor=1, settings=FOR_EVER)
        write(kafka, topic, records, random.Random(seed))
    return topic


def stretch_of(
    pair: Pair, topic: str, *, way: CompareMode = CompareMode.EXACT, start: int = 0, twin: str = ""
) -> CompareRange:
    named, twin_named = TopicPartition(topic, 0), TopicPartition(twin or topic, 0)
    target_end = pair[1].list_offsets([twin_named], OffsetKind.LAST_STABLE)[twin_named]
    source_end = pair[0].list_offsets([named], OffsetKind.LAST_STABLE)[named]
    end = source_end if way is CompareMode.CONTENT else min(source_end, target_end)
    return CompareRange(pair[0].cluster, pair[1].cluster, named, twin or topic, way, start, end, target_end=target_end)


def prove(stretch: CompareRange) -> CompareResult:
    (found,) = prove_all([stretch])
    return found


def proven(pair: Pair, topic: str, **how: object) -> CompareResult:
    return prove(stretch_of(pair, topic, **how))  # type: ignore[arg-type]


def said(folder: Path, east: LabCluster, west: LabCluster, topics: str, *words: str) -> tuple[int, str]:
    """Exit code and output of `twinshore prove`."""
    settings = folder / "twinshore.toml"
    if not settings.exists():
        settings.write_text(settings_text(folder, [east.cluster, west.cluster], {"east->west": topics}))
    register_verbs()
    result = CliRunner().invoke(app, ["prove", "--settings", str(settings), *words], catch_exceptions=False)
    return result.exit_code, result.stdout
