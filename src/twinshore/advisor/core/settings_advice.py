"""Settings of producer, topic and consumer for stated needs, and a live topic's settings as input for the simulator.

The first row of `settings.json` that matches the needs decides a setting. Conflicting needs are reported, with the one
that is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

from twinshore.advisor.core.model import (
    MIN_ISR_CONFIG,
    NO_LEADER,
    UNCLEAN_ELECTION_CONFIG,
    ClusterSnapshot,
    PartitionSnapshot,
    compute_majority,
)
from twinshore.config.errors import ConfigError
from twinshore.config.sentences import count_phrase


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The settings and state of a topic's worst partition.

    `away`: replicas out of sync. `flushed`: each record is on disk before its acknowledgement. `eligible`: eligible
    leader replicas are elected. `capped`: brokers cap `min_insync` at the number of replicas.
    """

    topic: str
    partition: int
    partitions: int
    copies: int
    away: int
    led: bool
    min_insync: int
    unclean: bool
    flushed: bool
    eligible: bool
    capped: bool


def build_loss_inputs(snapshot: ClusterSnapshot, name: str) -> LossInputs:
    """Raises ConfigError if the topic is missing or its settings are unreadable."""
    topic = snapshot.topic(name)
    if topic is None or not topic.partitions:
        raise ConfigError("kafka.unknown-topic", topic=name, clusters=snapshot.cluster, near="")
    minimum, unclean = topic.number(MIN_ISR_CONFIG), topic.says(UNCLEAN_ELECTION_CONFIG)
    if minimum is None or unclean is None:
        why = "; ".join(f"{spot.what}: {spot.why}" for spot in snapshot.unseen)
        raise ConfigError("advisor.settings-not-read", topic=name, cause=why)
    worst = min(topic.partitions, key=lambda tp: (len(tp.isr), len(tp.replicas), tp.number))
    return LossInputs(
        name,
        worst.number,
        len(topic.partitions),
        len(worst.replicas),
        _away(worst),
        worst.leader != NO_LEADER,
        minimum,
        unclean == "true",
        topic.number("flush.messages") == 1,
        snapshot.eligible,
        _capped(snapshot, name, minimum > len(worst.replicas)),
    )


def _capped(snapshot: ClusterSnapshot, name: str, matters: bool) -> bool:
    """Whether any broker caps min.insync.replicas, and so may as leader. Raises ConfigError if that matters and is
    unknown.
    """
    able = any(broker.caps_min_isr for broker in snapshot.brokers)
    blind = [spot for spot in snapshot.unseen if spot.what.startswith("the version of broker")]
    if matters and blind and not able:
        raise ConfigError(
            "advisor.version-not-read", topic=name, what=blind[0].what, cause=blind[0].why, hint=blind[0].hint
        )
    return able


def _away(partition: PartitionSnapshot) -> int:
    """At most all replicas but one: the simulation needs a leader."""
    return min(len(partition.replicas) - len(partition.isr), len(partition.replicas) - 1)


def describe_loss_inputs(inputs: LossInputs, cluster: str) -> Iterator[str]:
    settings = [
        count_phrase(inputs.copies, "replica"),
        f"{MIN_ISR_CONFIG}={inputs.min_insync}",
        f"unclean election {'on' if inputs.unclean else 'off'}",
        f"eligible leader replicas {'on' if inputs.eligible else 'off'}",
        *(["each record flushed"] if inputs.flushed else []),
    ]
    yield f"{inputs.topic} on {cluster}: {', '.join(settings)}."
    if not inputs.led:
        yield f"Partition {inputs.partition} has no leader now, and takes nothing. What follows begins once it has one."
    if inputs.away:
        away = f"{count_phrase(inputs.away, 'replica')} of partition {inputs.partition}"
        yield f"{away} {'is' if inputs.away == 1 else 'are'} not in sync now: what follows begins so."
        yield "Before, a record was acknowledged that only those in sync have."
    elif inputs.partitions > 1:
        yield f"Partition {inputs.partition} is looked at; none of the {inputs.partitions} is worse off."
    if inputs.copies == 1:
        yield "A disk that is lost as a whole is not played here: with one replica all records go with it."
    if inputs.min_insync > inputs.copies:
        takes = f"Kafka takes {inputs.copies}, and acknowledges with acks=all what {_those(inputs.copies)}"
        none = "brokers before Kafka 3.7 refuse all that is written with acks=all"
        yield (
            f"{MIN_ISR_CONFIG} asks for {inputs.min_insync} in sync of {inputs.copies}: "
            f"{takes if inputs.capped else none}."
        )


def _those(copies: int) -> str:
    return "one has" if copies == 1 else f"all {copies} have"


class LossTolerance(StrEnum):
    """Which acknowledged records may be lost: none, the last ones of a failed leader, or any."""

    NONE = "none"
    FEW = "few"
    ANY = "any"


class OrderingNeed(StrEnum):
    KEY = "key"
    ANY = "any"


class DuplicateTolerance(StrEnum):
    NONE = "none"
    FEW = "few"


class LatencyNeed(StrEnum):
    """`low`: milliseconds count; `normal`: throughput does."""

    LOW = "low"
    NORMAL = "normal"


class AvailabilityNeed(StrEnum):
    """Whether writing must go on with one broker away, with one replica left, or not at all."""

    ONE = "one"
    LAST = "last"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ApplicationNeeds:
    """`replicas`: how many each partition can have."""

    loss: LossTolerance = LossTolerance.NONE
    order: OrderingNeed = OrderingNeed.KEY
    duplicates: DuplicateTolerance = DuplicateTolerance.FEW
    latency: LatencyNeed = LatencyNeed.NORMAL
    availability: AvailabilityNeed = AvailabilityNeed.ONE
    replicas: int = 3

    @property
    def keeps(self) -> bool:
        return self.loss is LossTolerance.NONE

    @property
    def once(self) -> bool:
        """Each record that is read is handled once, neither skipped nor repeated."""
        return self.duplicates is DuplicateTolerance.NONE and not self.at_most_once

    @property
    def at_most_once(self) -> bool:
        return self.loss is LossTolerance.ANY and self.duplicates is DuplicateTolerance.NONE

    @property
    def idempotent(self) -> bool:
        """Idempotence keeps batches once and in order, and requires acks=all."""
        return self.keeps or (self.loss is LossTolerance.FEW and self.duplicates is DuplicateTolerance.NONE)

    @property
    def several(self) -> bool:
        return self.replicas > 1

    @property
    def many(self) -> bool:
        return self.replicas > 2


class SettingOwner(StrEnum):
    PRODUCER = "producer"
    TOPIC = "topic"
    CONSUMER = "consumer"
    APPLICATION = "application"
    BROKERS = "brokers"


@dataclass(frozen=True, slots=True)
class ChosenSetting:
    side: SettingOwner
    name: str
    value: str
    why: str
    librdkafka: str = ""


@dataclass(frozen=True, slots=True)
class SettingsChoice:
    """`against`: conflicts of the needs. `prices`: costs of what was chosen."""

    needs: ApplicationNeeds
    settings: tuple[ChosenSetting, ...]
    against: tuple[str, ...]
    prices: tuple[str, ...]

    def value(self, name: str) -> str | None:
        return next((choice.value for choice in self.settings if choice.name == name), None)


@cache
def read_advice() -> dict[str, list[dict[str, Any]]]:
    """`settings.json`: settings, conflicts of needs with the one that is kept, and prices of what was chosen."""
    text = resources.files("twinshore.advisor").joinpath("settings.json").read_text(encoding="utf-8")
    table: dict[str, list[dict[str, Any]]] = json.loads(text)
    return table


def _applies(row: Mapping[str, Any], needs: ApplicationNeeds) -> bool:
    """Whether the needs are as `when` says: it has the value of each field that counts, or a list of values."""
    return all(
        getattr(needs, name) in (wanted if isinstance(wanted, list) else [wanted])
        for name, wanted in row.get("when", {}).items()
    )


def choose_settings(needs: ApplicationNeeds) -> SettingsChoice:
    """The first row that applies decides a setting."""
    chosen: dict[tuple[SettingOwner, str], ChosenSetting] = {}
    for row in read_advice()["settings"]:
        side, name = SettingOwner(row["side"]), row["name"]
        if (side, name) not in chosen and _applies(row, needs):
            value = row["value"].format(replicas=needs.replicas, majority=compute_majority(needs.replicas))
            chosen[side, name] = ChosenSetting(side, name, value, row["why"], row.get("librdkafka", ""))
    against, prices = (
        tuple(row["says"] for row in read_advice()[kind] if _applies(row, needs)) for kind in ("conflicts", "prices")
    )
    return SettingsChoice(needs, tuple(chosen.values()), against, prices)
