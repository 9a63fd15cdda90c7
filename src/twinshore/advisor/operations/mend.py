"""Settings of topics that an advice calls safe to set: shown first, set when an operator says so, and read back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from twinshore.advisor.advice import Advice
from twinshore.advisor.rule import Finding
from twinshore.fleet import Cluster, KafkaError, RefusedError
from twinshore.fleet.operations import Plan
from twinshore.kafka.cluster import KafkaCluster

PATIENCE_S = 20.0
# Brokers hear of a change from the controller, a moment later.
HEARD_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class MendStep:
    """One topic. `before` are the values in force when it was planned, `wanted` those to be."""

    topic: str
    topic_id: bytes
    before: tuple[tuple[str, str], ...]
    wanted: tuple[tuple[str, str], ...]

    def sentence(self, *, done: bool) -> str:
        old = dict(self.before)
        told = ", ".join(f"{name}={value} (it was {old.get(name, 'unset')})" for name, value in self.wanted)
        return f"topic {self.topic}: {told} {'is set, and was read back' if done else 'would be set'}"


def plan(advice: Advice, cluster: Cluster) -> Plan[MendStep]:
    """What of the advice is safe to do by itself. What is waived is left alone."""
    wanted: dict[str, dict[str, str]] = {}
    for one in advice.findings:
        if one.safe is not None:
            wanted.setdefault(one.safe.topic, {}).update(one.safe.settings)
    left = sum(one.safe is None for one in advice.findings)
    remarks = (f"{left} more findings are left to you: their commands copy records, cost disk or need restarts",)
    if not wanted:
        return Plan(remarks=("nothing that was found is safe to mend by itself", *(remarks if left else ())))
    with closing(_open(advice, cluster)) as kafka:
        topics = kafka.metadata(list(wanted)).topics
        now = _now(kafka, wanted)
        steps = tuple(
            MendStep(name, topics[name].topic_id, now[name], tuple(settings.items()))
            for name, settings in sorted(wanted.items())
            if name in topics and not topics[name].error
        )
    return Plan(steps, remarks=remarks if left else ())


def act(planned: Plan[MendStep], advice: Advice, cluster: Cluster) -> Iterator[MendStep]:
    """RefusedError where somebody else has changed a setting since it was planned."""
    with closing(_open(advice, cluster)) as kafka:
        for step in planned.steps:
            names = {name: "" for name, _ in step.wanted}
            found = _now(kafka, {step.topic: names})[step.topic]
            if found != step.before:
                raise RefusedError(
                    f"topic {step.topic}: somebody has changed it meanwhile: {_told(found)}, it was"
                    f" {_told(step.before)}; nothing of it was changed",
                    hint="look again",
                )
            kafka.admin.alter_topic_settings(step.topic, dict(step.wanted), topic_id=step.topic_id)
            _read_back(kafka, step)
            yield step


def left_of(advice: Advice, steps: list[MendStep]) -> tuple[Finding, ...]:
    """The findings that these steps have not mended."""
    done = {step.topic for step in steps}
    return tuple(one for one in advice.findings if one.safe is None or one.safe.topic not in done)


def _open(advice: Advice, cluster: Cluster) -> KafkaCluster:
    """The cluster that the advice is of, and no other."""
    return KafkaCluster(
        cluster, client_id="twinshore-advise", cluster_id=advice.cluster_id, patience_s=PATIENCE_S, call_s=PATIENCE_S
    )


def _now(kafka: KafkaCluster, wanted: dict[str, dict[str, str]]) -> dict[str, tuple[tuple[str, str], ...]]:
    """What is in force of these settings, of each topic; the first that is refused is a KafkaError."""
    keys = sorted({name for settings in wanted.values() for name in settings})
    found, refused = kafka.admin.readable_settings(wanted, keys)
    for error in refused.values():
        raise error
    return {
        topic: tuple((name, found[topic][name].value or "") for name in settings if name in found[topic])
        for topic, settings in wanted.items()
    }


def _read_back(kafka: KafkaCluster, step: MendStep) -> None:
    until_s = time.monotonic() + HEARD_WITHIN_S
    names = {name: "" for name, _ in step.wanted}
    while (found := _now(kafka, {step.topic: names})[step.topic]) != step.wanted:
        if time.monotonic() > until_s:
            raise KafkaError(
                f"topic {step.topic}: {_told(step.wanted)} was set, but {_told(found)} is read back",
                hint="see with kafka-configs.sh --describe what holds",
            )
        time.sleep(0.1)


def _told(settings: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings)
