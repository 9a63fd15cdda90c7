"""Operator commands for a spool whose producer does not come back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twinshore.client.core.spool_format import SegmentGapKind
from twinshore.client.producer import FailoverProducer
from twinshore.client.spool import LoadedSpool, Spool, SpoolFiles, SpoolTopic, damage_error, load_spool
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.model import Cluster, Plan
from twinshore.config.sentences import count_phrase

ATTEMPTS_MAX = 5


@dataclass(frozen=True, slots=True)
class SpoolReport:
    """`holder`: process id of the producer with the lock. `notes`: unreadable bytes that lose no record."""

    folder: Path
    topics: tuple[SpoolTopic, ...]
    bytes: int
    holder: str
    damage: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def records(self) -> int:
        return sum(topic.records for topic in self.topics)

    def sentences(self) -> list[str]:
        who = f"; the producer in process {self.holder} holds it" if self.holder else "; no producer holds it"
        what = f"{count_phrase(self.records, 'record')} of {count_phrase(len(self.topics), 'topic')} to send"
        head = f"{self.folder}: {what}, {count_phrase(self.bytes, 'byte')} on the disk{who}"
        damage = [f"damage: {sentence}" for sentence in self.damage]
        return [head, *(topic.sentence() for topic in self.topics), *self.notes, *damage]

    def as_values(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "records": self.records,
            "bytes": self.bytes,
            "holder": self.holder,
            "topics": list(map(asdict, self.topics)),
            "damage": list(self.damage),
            "notes": list(self.notes),
        }


def inspect_spool(folder: Path) -> SpoolReport:
    """Read a spool without changes. ConfigError where there is none."""
    files, loaded = _loaded(folder)
    holder = files.holder()
    hidden = {SegmentGapKind.DAMAGED, SegmentGapKind.TORN if holder else None}  # a holder may be writing now
    notes = [trouble.sentence() for trouble in loaded.troubles if trouble.gap.kind not in hidden]
    if not loaded.marks_are_readable:
        notes.append("the marks cannot be read: all records there would be sent again")
    topics = tuple(topic for _, topic in sorted(loaded.tallies.items()))
    size = sum(segment.end for segment in loaded.segments.values())
    damage = tuple(damage.sentence() for damage in loaded.damage)
    return SpoolReport(folder, topics, size, holder, damage, tuple(notes))


def _loaded(folder: Path) -> tuple[SpoolFiles, LoadedSpool]:
    """Load the spool, again if its producer deletes a file in between."""
    for left in reversed(range(ATTEMPTS_MAX)):
        try:
            files = SpoolFiles(folder)
            if not files.salts and files.marks() is None:
                raise ConfigError("client.no-such-spool", folder=str(folder))
            return files, load_spool(files)
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or not left:
                raise ConfigError("client.spool-unreadable", folder=str(folder), cause=error.strerror) from error
    raise AssertionError("it returns or raises")


@dataclass(frozen=True, slots=True)
class SpoolStep:
    """`does`: for example "is sent"; `would`: "would be sent"."""

    topic: SpoolTopic
    does: str
    would: str

    def sentence(self, *, done: bool) -> str:
        return f"{self.topic.sentence()}: {self.does if done else self.would}"


@dataclass(frozen=True, slots=True)
class SendSpool:
    """`topics`: empty for all. `first`: the cluster for topics without a home record, by default the first.
    `past_damage`: give up unreadable records.
    """

    folder: Path
    topics: Collection[str] = ()
    first: str = ""
    past_damage: bool = False


def plan_send(spool: SendSpool, clusters: Mapping[str, Cluster]) -> Plan[SpoolStep]:
    """ConfigError where nothing matches; RefusedError where a producer holds the spool, or records are damaged."""
    if spool.first and spool.first not in clusters:
        raise ConfigError("client.no-such-cluster", cluster=spool.first, clusters=", ".join(clusters))
    report = _free(spool.folder, past_damage=spool.past_damage)
    steps = [SpoolStep(topic, "is sent", "would be sent") for topic in _of(report, spool.topics)]
    shown = [*report.notes, *(f"given up: {sentence}" for sentence in report.damage)]
    return Plan(tuple(steps), tuple(shown))


def send_spool(
    plan: Plan[SpoolStep], send_spool: SendSpool, clusters: Mapping[str, Cluster], *, within_s: float
) -> Iterator[SpoolStep]:
    """Yields each topic once all its records are acknowledged. Records that a producer with `recognise` had sent are
    not sent again. RefusedError in the end where some are not acknowledged.
    """
    topics = [step.topic.topic for step in plan.steps]
    if not topics:
        return
    ordered = {send_spool.first: clusters[send_spool.first], **clusters} if send_spool.first else clusters
    spool = Spool(send_spool.folder, past_damage=send_spool.past_damage)
    quiet = {"log_level": 2}  # errors are reported at the end
    with FailoverProducer(
        quiet, clusters=ordered, topics=topics, name="spool send", spool=spool, recognise=True
    ) as producer:
        producer.flush(within_s)
        why = {topic: producer.where(topic) for topic in topics}
        producer.close(0)
        left = spool.topics()
    yield from (step for step in plan.steps if step.topic.topic not in left)
    if unsent := [topic for topic in topics if topic in left]:
        lacking = [f"{topic}: {count_phrase(left[topic], 'record')} ({why[topic]})" for topic in unsent]
        raise RefusedError("client.spool-not-sent", seconds=within_s, left="; ".join(lacking))


@dataclass(frozen=True, slots=True)
class DropTopic:
    """`past_damage`: give up unreadable records too."""

    folder: Path
    topic: str
    past_damage: bool = False


def plan_drop(drop_topic: DropTopic) -> Plan[SpoolStep]:
    """As `plan_send`."""
    report = _free(drop_topic.folder, past_damage=drop_topic.past_damage)
    topics = _of(report, [drop_topic.topic])
    return Plan(tuple(SpoolStep(topic, "is dropped", "would be dropped") for topic in topics))


def drop_topic(plan: Plan[SpoolStep], drop_topic: DropTopic) -> Iterator[SpoolStep]:
    with closing(Spool(drop_topic.folder, past_damage=drop_topic.past_damage)) as spool:
        for step in plan.steps:
            topic = step.topic.topic
            while spool.unsent(topic):
                spool.prepare(topic)
                while (head := spool.head(topic)) is not None:
                    spool.handed_out(topic, head.number)
                    spool.done(topic, head.number)
            yield step


def _free(folder: Path, *, past_damage: bool) -> SpoolReport:
    report = inspect_spool(folder)
    if report.holder:
        raise RefusedError("client.spool-in-use", folder=str(folder), process=report.holder)
    if report.damage and not past_damage:
        raise damage_error(folder, report.damage)
    return report


def _of(report: SpoolReport, topics: Collection[str]) -> list[SpoolTopic]:
    there = {topic.topic: topic for topic in report.topics}
    if strange := [topic for topic in topics if topic not in there]:
        known = ", ".join(there) or "none"
        raise ConfigError("client.spool-without-topic", folder=str(report.folder), topic=strange[0], topics=known)
    return [there[topic] for topic in topics or there]
