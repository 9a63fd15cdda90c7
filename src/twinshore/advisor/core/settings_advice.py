"""Settings of producer, topic and consumer for stated needs, and a live topic's settings as input for the simulator.

The first row of `SETTING_ADVICE` that matches the needs decides a setting. Conflicting needs are reported, with the one
that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

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


class SettingOwner(StrEnum):
    PRODUCER = "producer"
    TOPIC = "topic"
    CONSUMER = "consumer"
    APPLICATION = "application"
    BROKERS = "brokers"


SettingValue = str | Callable[[ApplicationNeeds], str]
NeedsCondition = Callable[[ApplicationNeeds], bool]


@dataclass(frozen=True, slots=True)
class SettingAdvice:
    """`name`: a setting, or what the application does itself. `librdkafka`: its value if different from Java's."""

    side: SettingOwner
    name: str
    value: SettingValue
    when: NeedsCondition
    why: str
    librdkafka: str = ""


@dataclass(frozen=True, slots=True)
class ChosenSetting:
    side: SettingOwner
    name: str
    value: str
    why: str
    librdkafka: str = ""


@dataclass(frozen=True, slots=True)
class NeedsConflict:
    """`says` which needs conflict, and which one the settings keep."""

    when: NeedsCondition
    says: str


@dataclass(frozen=True, slots=True)
class SettingsChoice:
    """`against`: conflicts of the needs. `prices`: costs of what was chosen."""

    needs: ApplicationNeeds
    settings: tuple[ChosenSetting, ...]
    against: tuple[str, ...]
    prices: tuple[str, ...]

    def value(self, name: str) -> str | None:
        return next((choice.value for choice in self.settings if choice.name == name), None)


def always_applies(_: ApplicationNeeds) -> bool:
    return True


def _p(name: str, value: SettingValue, why: str, when: NeedsCondition = always_applies) -> SettingAdvice:
    return SettingAdvice(SettingOwner.PRODUCER, name, value, when, why)


def _t(name: str, value: SettingValue, why: str, when: NeedsCondition = always_applies) -> SettingAdvice:
    return SettingAdvice(SettingOwner.TOPIC, name, value, when, why)


def _c(
    name: str, value: SettingValue, why: str, when: NeedsCondition = always_applies, librdkafka: str = ""
) -> SettingAdvice:
    return SettingAdvice(SettingOwner.CONSUMER, name, value, when, why, librdkafka)


RETRIES_MAX_VALUE = "2147483647"
# Kafka's default, stated because librdkafka refuses to retry a record for longer than a transaction may take.
TRANSACTION_MS = "60000"
ELR_FEATURE = "eligible.leader.replicas.version"
SETTING_ADVICE: Final = (
    _p("acks", "all", "acknowledged means that all replicas in sync have it", lambda n: n.idempotent),
    _p(
        "acks",
        "0",
        "nobody waits, so nobody hears of a loss",
        lambda n: n.loss is LossTolerance.ANY and n.latency is LatencyNeed.LOW,
    ),
    _p("acks", "1", "the leader alone is waited for; what only it had is lost with it"),
    _p("enable.idempotence", "true", "a batch sent again is kept once, in its order", lambda n: n.idempotent),
    _p("enable.idempotence", "false", "it would ask for acks=all"),
    _p("retries", "0", "what may have arrived is not sent again", lambda n: n.at_most_once),
    _p("retries", RETRIES_MAX_VALUE, "a leader that moves costs a moment, and no record"),
    _p(
        "delivery.timeout.ms",
        TRANSACTION_MS,
        "as long as its transaction; one that fails is aborted and begun again, and nothing of it is lost",
        lambda n: n.once,
    ),
    _p(
        "delivery.timeout.ms",
        RETRIES_MAX_VALUE,
        "given up is lost: it is tried as long as the process lives; a full buffer makes send() wait",
        lambda n: n.keeps,
    ),
    _p("delivery.timeout.ms", "60000", "what is a minute late is given up", lambda n: n.loss is LossTolerance.ANY),
    _p("delivery.timeout.ms", "120000", "longer than any election takes"),
    _p(
        "max.in.flight.requests.per.connection",
        "1",
        "without idempotence a batch that is sent again would overtake",
        lambda n: n.order is OrderingNeed.KEY and not n.idempotent and not n.at_most_once,
    ),
    _p("max.in.flight.requests.per.connection", "5", "idempotence keeps up to five in order", lambda n: n.idempotent),
    _p("max.in.flight.requests.per.connection", "5", "nothing is sent again", lambda n: n.at_most_once),
    _p("max.in.flight.requests.per.connection", "5", "order does not matter"),
    _p(
        "transactional.id",
        "ONE NAME FOR EACH INSTANCE, THE SAME AFTER A RESTART",
        "records and the committed offsets of the input are written together or not at all, and a zombie is fenced",
        lambda n: n.once,
    ),
    _p(
        "transaction.timeout.ms",
        TRANSACTION_MS,
        "readers of committed records wait no longer than this for a producer that died",
        lambda n: n.once,
    ),
    _p("linger.ms", "0", "a record waits for no other", lambda n: n.latency is LatencyNeed.LOW),
    _p("linger.ms", "20", "records that come within 20 ms share a batch: fewer requests, better compression"),
    _p("batch.size", "131072", "room for what linger.ms gathers", lambda n: n.latency is LatencyNeed.NORMAL),
    _p("compression.type", "lz4", "it costs next to no time", lambda n: n.latency is LatencyNeed.LOW),
    _p("compression.type", "zstd", "the fewest bytes on lines and disks"),
    _t("replication.factor", lambda n: str(n.replicas), "so many brokers have each record"),
    _t(
        MIN_ISR_CONFIG,
        lambda n: str(compute_majority(n.replicas)),
        "N/2 + 1: whatever is acknowledged is on more than half of the replicas; with fewer, writers are refused",
        lambda n: n.keeps,
    ),
    _t(MIN_ISR_CONFIG, "1", "one replica is enough to write"),
    _t(
        UNCLEAN_ELECTION_CONFIG,
        "true",
        "a replica that is behind may lead rather than nobody",
        lambda n: n.loss is LossTolerance.ANY and n.availability is AvailabilityNeed.LAST,
    ),
    _t(UNCLEAN_ELECTION_CONFIG, "false", "a replica that is behind never leads, so no log is cut"),
    _c("isolation.level", "read_committed", "half of a transaction is never shown", lambda n: n.once),
    _c(
        "enable.auto.commit",
        "true",
        "an offset is committed by the clock, whether its records were handled or not",
        lambda n: n.loss is LossTolerance.ANY and n.duplicates is DuplicateTolerance.FEW,
    ),
    _c("enable.auto.commit", "false", "only the application knows when a record is done"),
    _c(
        "auto.offset.reset",
        "none",
        "without a committed offset it stops, and a person decides: earliest would repeat, latest would skip",
        lambda n: n.once,
        librdkafka="error",
    ),
    _c(
        "auto.offset.reset",
        "latest",
        "without a committed offset it goes on with what comes",
        lambda n: n.loss is LossTolerance.ANY,
    ),
    _c("auto.offset.reset", "earliest", "without a committed offset it repeats rather than skips, up to retention"),
    _c("fetch.min.bytes", "1", "an answer waits for no second record", lambda n: n.latency is LatencyNeed.LOW),
    _c("fetch.min.bytes", "65536", "fewer and larger answers; fetch.max.wait.ms bounds the wait"),
    SettingAdvice(
        SettingOwner.APPLICATION,
        "results and offsets",
        "in one transaction",
        lambda n: n.once,
        "of its database, where it keeps its offsets beside its results and seeks there at start; or of the producer,"
        " by sendOffsetsToTransaction",
    ),
    SettingAdvice(
        SettingOwner.APPLICATION,
        "commit",
        "before a record is handled",
        lambda n: n.at_most_once,
        "a crash in between loses it, and never repeats it",
    ),
    SettingAdvice(
        SettingOwner.APPLICATION,
        "commit",
        "after a record is handled",
        lambda n: n.loss is not LossTolerance.ANY and not n.once,
        "a crash in between repeats it, and never loses it: handle a record twice like once",
    ),
    SettingAdvice(
        SettingOwner.APPLICATION,
        "a failed send",
        "is kept on disk and sent again",
        lambda n: n.keeps,
        "the process may end before its buffer is empty",
    ),
    SettingAdvice(
        SettingOwner.BROKERS,
        ELR_FEATURE,
        "1",
        lambda n: n.keeps and n.replicas > 1,
        "a feature of Kafka 4.0 and newer, which kafka-features.sh sets: whoever has all that was acknowledged may"
        " lead, not only the last one in sync, whatever became of its disk",
    ),
    SettingAdvice(
        SettingOwner.BROKERS,
        "offsets.retention.minutes",
        "10080",
        lambda n: n.loss is not LossTolerance.ANY,
        "a group that rests for a week still has its committed offset",
    ),
    SettingAdvice(
        SettingOwner.BROKERS,
        "broker.rack",
        "NAME OF ITS ZONE",
        lambda n: n.loss is not LossTolerance.ANY and n.replicas > 1,
        "replicas are spread over zones, so that one zone is one fault",
    ),
)
NEEDS_CONFLICTS: Final = (
    NeedsConflict(
        lambda n: n.keeps and n.replicas == 1,
        "no loss, and one replica: a lost disk is lost records. Have three replicas",
    ),
    NeedsConflict(
        lambda n: n.keeps and n.replicas == 2 and n.availability is not AvailabilityNeed.NONE,
        "no loss, two replicas, and writing while a broker is away: with one left nothing may be acknowledged. No loss"
        " is kept; have three replicas",
    ),
    NeedsConflict(
        lambda n: n.keeps and n.replicas > 2 and n.availability is AvailabilityNeed.LAST,
        "no loss, and writing with one replica left: what only that one has is lost with it. No loss is kept: writers"
        " are refused until more than half of the replicas are back",
    ),
    NeedsConflict(
        lambda n: n.replicas == 1 and not n.keeps and n.availability is not AvailabilityNeed.NONE,
        "one replica, and writing while a broker is away: its partitions have no other. Have two replicas or more",
    ),
    NeedsConflict(
        lambda n: (
            n.loss is LossTolerance.ANY and n.order is OrderingNeed.KEY and n.availability is AvailabilityNeed.LAST
        ),
        "order, and a replica that is behind may lead: records cut from the log leave gaps, and what was read already"
        " may come again at other offsets. Writing goes on is kept",
    ),
)
TRADE_OFFS: Final = (
    NeedsConflict(
        lambda n: n.keeps and n.replicas == 2,
        "two replicas keep the records through one fault: where both brokers lose their power, what neither disk has is"
        " gone",
    ),
    NeedsConflict(
        lambda n: n.keeps and n.replicas > 2,
        "the records are kept through two faults with eligible leader replicas, and through one without: the last"
        " replica in sync may lose its power then, and still leads though others have the records (twinshore simulate"
        " story last-in-sync). flush.messages=1 on the topic keeps them through losses of power, and costs latency",
    ),
    NeedsConflict(
        lambda n: n.idempotent and n.latency is LatencyNeed.LOW,
        "acks=all: each record waits for the slowest follower in sync, so low latency is that of the slowest",
    ),
    NeedsConflict(
        lambda n: n.once and n.latency is LatencyNeed.LOW,
        "a consumer that reads committed records waits for the end of each transaction: keep transactions short",
    ),
    NeedsConflict(
        lambda n: n.loss is LossTolerance.FEW and n.duplicates is DuplicateTolerance.NONE,
        "no duplicates asks for idempotence, and that for acks=all: slower than the loss that you allow would need",
    ),
    NeedsConflict(
        lambda n: n.order is OrderingNeed.KEY and not n.idempotent and not n.at_most_once,
        "one request in flight keeps the order, and costs throughput; acks=all with idempotence would not",
    ),
)


def choose_settings(needs: ApplicationNeeds) -> SettingsChoice:
    chosen: dict[tuple[SettingOwner, str], ChosenSetting] = {}
    for row in SETTING_ADVICE:
        if (row.side, row.name) not in chosen and row.when(needs):
            value = row.value if isinstance(row.value, str) else row.value(needs)
            chosen[row.side, row.name] = ChosenSetting(row.side, row.name, value, row.why, row.librdkafka)
    against = tuple(conflict.says for conflict in NEEDS_CONFLICTS if conflict.when(needs))
    return SettingsChoice(
        needs, tuple(chosen.values()), against, tuple(conflict.says for conflict in TRADE_OFFS if conflict.when(needs))
    )
