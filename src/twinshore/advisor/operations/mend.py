"""`twinshore advise --fix`: sets topic settings that an advice calls safe, after showing them, and reads them back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from twinshore.advisor.core.advice_report import Advice
from twinshore.advisor.core.model import MIN_ISR_CONFIG, Finding
from twinshore.config.errors import KafkaError, RefusedError
from twinshore.config.frozen import ADVISE_CLIENT_ID
from twinshore.config.model import Cluster, Plan
from twinshore.config.sentences import count_phrase, join_names
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.metadata import NO_LEADER, TopicMetadata
from twinshore.kafka.protocol.error_codes import Code

ITEMS_NAMED_MAX = 10
CLUSTER_TIMEOUT_S = 20.0
# Brokers learn of a change from the controller a moment later.
READ_BACK_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class MendStep:
    """One topic. `before`: the values when planned. `wanted`: the new values."""

    topic: str
    topic_id: bytes
    before: tuple[tuple[str, str], ...]
    wanted: tuple[tuple[str, str], ...]

    def sentence(self, *, done: bool) -> str:
        old = dict(self.before)
        told = ", ".join(f"{name}={value} (it was {old.get(name, 'unset')})" for name, value in self.wanted)
        return f"topic {self.topic}: {told} {'is set, and was read back' if done else 'would be set'}"


def plan(advice: Advice, cluster: Cluster) -> Plan[MendStep]:
    """Plans the safe changes of the advice, without waived findings."""
    wanted: dict[str, dict[str, str]] = {}
    for finding in advice.findings:
        if finding.safe is not None:
            wanted.setdefault(finding.safe.topic, {}).update(finding.safe.settings)
    left = sum(finding.safe is None for finding in advice.findings)
    remarks = [f"{count_phrase(left, 'more finding')} left to you: what mends each stands beside it"] if left else []
    if not wanted:
        return Plan(remarks=("nothing that was found is safe to mend by itself", *remarks))
    with closing(_open(advice, cluster)) as kafka:
        topics = kafka.metadata(list(wanted)).topics
        barred = {name: why for name in wanted if (why := explain_refusal(topics.get(name), wanted[name]))}
        now = _now(kafka, {name: settings for name, settings in wanted.items() if name not in barred})
        steps = tuple(
            MendStep(name, topics[name].topic_id, now[name], tuple(wanted[name].items())) for name in sorted(now)
        )
    remarks += [f"topic {name} is left alone: {why}" for name, why in sorted(barred.items())]
    return Plan(steps, remarks=tuple(remarks))


def act(plan: Plan[MendStep], advice: Advice, cluster: Cluster) -> Iterator[MendStep]:
    """Applies the plan. Raises RefusedError if a setting changed since, or the topic's state no longer permits the
    change.
    """
    with closing(_open(advice, cluster)) as kafka:
        for step in plan.steps:
            why = explain_refusal(kafka.metadata([step.topic]).topics.get(step.topic), dict(step.wanted))
            if why:
                raise RefusedError("advisor.fix-refused", topic=step.topic, cause=why)
            names = {name: "" for name, _ in step.wanted}
            found = _now(kafka, {step.topic: names}).get(step.topic, ())
            if found != step.before:
                raise RefusedError(
                    "advisor.topic-changed",
                    topic=step.topic,
                    found=_told(found) or "deleted",
                    before=_told(step.before),
                )
            kafka.admin.alter_topic_settings(step.topic, dict(step.wanted), topic_id=step.topic_id)
            _read_back(kafka, step)
            yield step


def find_unmended(advice: Advice, steps: list[MendStep]) -> tuple[Finding, ...]:
    done = {(step.topic, *setting) for step in steps for setting in step.wanted}
    return tuple(
        finding
        for finding in advice.findings
        if finding.safe is None or not {(finding.safe.topic, *setting) for setting in finding.safe.settings} <= done
    )


def explain_refusal(topic: TopicMetadata | None, wanted: Mapping[str, str]) -> str:
    """Why these settings may not be set now; empty if they may.

    For a partition without a leader the present setting may be the only way back. A change of min.insync.replicas makes
    the cluster forget which out-of-sync replicas could lead.
    """
    if topic is None or topic.error:
        return "it is there no more"
    unled = [str(partition.partition) for partition in topic.partitions if partition.leader == NO_LEADER]
    if unled:
        return f"partition {join_names(unled, ITEMS_NAMED_MAX)} has no leader now"
    behind = [
        str(partition.partition) for partition in topic.partitions if not set(partition.replicas) <= set(partition.isr)
    ]
    if behind and MIN_ISR_CONFIG in wanted:
        return f"not all replicas of partition {join_names(behind, ITEMS_NAMED_MAX)} are in sync now"
    return ""


def _open(advice: Advice, cluster: Cluster) -> KafkaCluster:
    """Opens the advice's cluster, pinned by cluster id."""
    return KafkaCluster(
        cluster,
        client_id=ADVISE_CLIENT_ID,
        cluster_id=advice.cluster_id,
        patience_s=CLUSTER_TIMEOUT_S,
        call_s=CLUSTER_TIMEOUT_S,
    )


def _now(kafka: KafkaCluster, wanted: dict[str, dict[str, str]]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Current values of these settings, by existing topic. Raises the first KafkaError."""
    keys = sorted({name for settings in wanted.values() for name in settings})
    found, errors = kafka.admin.readable_settings(wanted, keys)
    for error in errors.values():
        if error.code != Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    return {
        topic: tuple((name, found[topic][name].value or "") for name in settings if name in found[topic])
        for topic, settings in wanted.items()
        if topic in found
    }


def _read_back(kafka: KafkaCluster, step: MendStep) -> None:
    until_s = time.monotonic() + READ_BACK_TIMEOUT_S
    names = {name: "" for name, _ in step.wanted}
    while (found := _now(kafka, {step.topic: names}).get(step.topic, ())) != step.wanted:
        if time.monotonic() > until_s:
            raise KafkaError(
                f"topic {step.topic}: {_told(step.wanted)} was set, but {_told(found)} is read back",
                hint="see with kafka-configs.sh --describe what holds",
            )
        time.sleep(0.1)


def _told(settings: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings)
