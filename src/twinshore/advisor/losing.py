"""What a live topic is set to, as the model of its losses takes it: the partition that is worst off counts. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from twinshore.advisor.profiles import MIN_ISR, UNCLEAN
from twinshore.advisor.seen import NO_LEADER, Partition, Seen
from twinshore.fleet import ConfigError
from twinshore.fleet.sentences import counted


@dataclass(frozen=True, slots=True)
class Stake:
    """The settings that a loss depends on, and how the partition stands. `away`: replicas that are not in sync now.
    `flushed`: each record is on disk before it is acknowledged. `eligible`: eligible leader replicas are elected.
    `capped`: of `min_insync` a broker takes no more than there are replicas."""

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


def stake_of(seen: Seen, name: str) -> Stake:
    """ConfigError where there is no such topic, or where its settings could not be seen."""
    topic = seen.topic(name)
    if topic is None or not topic.partitions:
        raise ConfigError(f"there is no topic {name} on {seen.cluster}, or it may not be seen from here")
    minimum, unclean = topic.number(MIN_ISR), topic.says(UNCLEAN)
    if minimum is None or unclean is None:
        why = "; ".join(f"{one.what}: {one.why}" for one in seen.unseen)
        hint = "ask as a user with DescribeConfigs on the topic"
        raise ConfigError(f"the settings of {name} could not be seen: {why}", hint=hint)
    worst = min(topic.partitions, key=lambda one: (len(one.isr), len(one.replicas), one.number))
    return Stake(
        name,
        worst.number,
        len(topic.partitions),
        len(worst.replicas),
        _away(worst),
        worst.leader != NO_LEADER,
        minimum,
        unclean == "true",
        topic.number("flush.messages") == 1,
        seen.eligible,
        _capped(seen, name, minimum > len(worst.replicas)),
    )


def _capped(seen: Seen, name: str, matters: bool) -> bool:
    """One broker that does so is enough, if it leads. ConfigError where it matters and nobody knows."""
    able = any(broker.caps_min_isr for broker in seen.brokers)
    blind = [one for one in seen.unseen if one.what.startswith("the version of broker")]
    if matters and blind and not able:
        says = f"{name} asks for more replicas in sync than it has: what comes of it depends on the brokers' version"
        raise ConfigError(f"{says}, and {blind[0].what} could not be seen: {blind[0].why}", hint=blind[0].hint)
    return able


def _away(partition: Partition) -> int:
    """One replica at least is there: who leads has to be."""
    return min(len(partition.replicas) - len(partition.isr), len(partition.replicas) - 1)


def sentences_of(stake: Stake, cluster: str) -> Iterator[str]:
    """What was found there, before what comes of it."""
    settings = [
        counted(stake.copies, "replica"),
        f"{MIN_ISR}={stake.min_insync}",
        f"unclean election {'on' if stake.unclean else 'off'}",
        f"eligible leader replicas {'on' if stake.eligible else 'off'}",
        *(["each record flushed"] if stake.flushed else []),
    ]
    yield f"{stake.topic} on {cluster}: {', '.join(settings)}."
    if not stake.led:
        yield f"Partition {stake.partition} has no leader now, and takes nothing. What follows begins once it has one."
    if stake.away:
        away = f"{counted(stake.away, 'replica')} of partition {stake.partition}"
        yield f"{away} {'is' if stake.away == 1 else 'are'} not in sync now: what follows begins so."
        yield "Before, a record was acknowledged that only those in sync have."
    elif stake.partitions > 1:
        yield f"Partition {stake.partition} is looked at; none of the {stake.partitions} is worse off."
    if stake.copies == 1:
        yield "A disk that is lost as a whole is not played here: with one replica all records go with it."
    if stake.min_insync > stake.copies:
        takes = f"Kafka takes {stake.copies}, and acknowledges with acks=all what {_those(stake.copies)}"
        none = "brokers before Kafka 3.7 refuse all that is written with acks=all"
        yield f"{MIN_ISR} asks for {stake.min_insync} in sync of {stake.copies}: {takes if stake.capped else none}."


def _those(copies: int) -> str:
    return "one has" if copies == 1 else f"all {copies} have"
