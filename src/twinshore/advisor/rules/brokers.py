"""Rules about brokers: racks, versions, and what they do by default. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from twinshore.advisor import commands
from twinshore.advisor.profiles import MIN_ISR
from twinshore.advisor.rule import Found, Limit, Rule, Weight
from twinshore.advisor.seen import Broker, Seen
from twinshore.fleet.sentences import counted, listed

NAMED = 10
HOUR_MS = 3_600_000
Limits = Mapping[str, float]
# The highest metadata.version of each release.
_RELEASES = {7: "3.3", 8: "3.4", 11: "3.5", 14: "3.6", 19: "3.7", 20: "3.8", 21: "3.9", 25: "4.0", 27: "4.1"}


def release(level: int) -> str:
    """A metadata.version in words."""
    known = _RELEASES.get(level)
    return f"{level} (Kafka {known})" if known else str(level)


def _racks_unset(seen: Seen, _: Limits) -> Iterator[Found]:
    bare = [str(one.node) for one in seen.brokers if not one.rack]
    if bare and len(seen.brokers) > 1:
        by_hand = commands.in_properties({"broker.rack": "NAME OF ITS ZONE"})
        yield Found("cluster", f"no broker.rack at broker {listed(bare, NAMED)}", by_hand=by_hand)


def _versions(seen: Seen, _: Limits) -> Iterator[Found]:
    by_level: dict[int, list[str]] = {}
    for one in seen.brokers:
        if one.supports:
            by_level.setdefault(one.supports, []).append(str(one.node))
    if len(by_level) > 1:
        told = "; ".join(f"broker {listed(nodes, NAMED)} up to {release(at)}" for at, nodes in sorted(by_level.items()))
        yield Found(
            "cluster", f"metadata.version: {told}", by_hand="finish the upgrade: bring all brokers to one version"
        )


def _unfinished(seen: Seen, _: Limits) -> Iterator[Found]:
    levels = {one.supports for one in seen.brokers}
    least = min(levels, default=0)
    if len(levels) == 1 and 0 < seen.finalized < least:
        line = f"kafka-features.sh {commands.to_cluster(seen)} upgrade --feature metadata.version={least}"
        yield Found("cluster", f"it works by {release(seen.finalized)}, all brokers know {release(least)}", (line,))


def _with(seen: Seen, setting: str) -> dict[str, list[Broker]]:
    """The brokers by what they say of a setting, as far as that could be seen."""
    found: dict[str, list[Broker]] = {}
    for one in seen.brokers:
        if (value := one.says(setting)) is not None:
            found.setdefault(value, []).append(one)
    return found


def _at(brokers: list[Broker]) -> str:
    return f"broker {listed([str(one.node) for one in brokers], NAMED)}"


def _auto_create(seen: Seen, _: Limits) -> Iterator[Found]:
    setting = "auto.create.topics.enable"
    if brokers := _with(seen, setting).get("true"):
        yield Found("cluster", f"{setting}=true at {_at(brokers)}", by_hand=commands.in_properties({setting: "false"}))


def _least(seen: Seen, setting: str) -> tuple[int, list[Broker]] | None:
    """The lowest value, and which brokers have it."""
    numbers = [(number, one) for one in seen.brokers if (number := one.number(setting)) is not None]
    if not numbers:
        return None
    low = min(number for number, _ in numbers)
    return low, [one for number, one in numbers if number == low]


def _offsets_retention(seen: Seen, limits: Limits) -> Iterator[Found]:
    setting, hours = "offsets.retention.minutes", limits["hours"]
    least = _least(seen, setting)
    if least and least[0] < hours * 60:
        by_hand = commands.in_properties({setting: f"{hours * 60:.0f}"})
        yield Found("cluster", f"{setting}={least[0]} ({least[0] / 60:g} h) at {_at(least[1])}", by_hand=by_hand)


def _transaction_timeout(seen: Seen, limits: Limits) -> Iterator[Found]:
    setting, minutes = "transaction.max.timeout.ms", limits["minutes"]
    high = [one for one in seen.brokers if (one.number(setting) or 0) > minutes * 60_000]
    if high:
        most = max(one.number(setting) or 0 for one in high)
        by_hand = commands.in_properties({setting: f"{minutes * 60_000:.0f}"})
        yield Found("cluster", f"{setting}={most} ({most / 60_000:.7g} min) at {_at(high)}", by_hand=by_hand)


def _transactional_expiry(seen: Seen, limits: Limits) -> Iterator[Found]:
    for setting in ("transactional.id.expiration.ms", "producer.id.expiration.ms"):
        least = _least(seen, setting)
        if least and least[0] < limits["hours"] * HOUR_MS:
            by_hand = commands.in_properties({setting: f"{limits['hours'] * HOUR_MS:.0f}"})
            evidence = f"{setting}={least[0]} ({least[0] / HOUR_MS:g} h) at {_at(least[1])}"
            yield Found(f"cluster, {setting}", evidence, by_hand=by_hand)


def _new_topics(seen: Seen, limits: Limits) -> Iterator[Found]:
    copies, minimum = _least(seen, "default.replication.factor"), _least(seen, MIN_ISR)
    weak: list[str] = []
    lines: tuple[str, ...] = ()
    by_hand: list[str] = []
    if copies and copies[0] < limits["copies"]:
        weak.append(f"default.replication.factor={copies[0]} at {_at(copies[1])}")
        by_hand.append(commands.in_properties({"default.replication.factor": f"{limits['copies']:.0f}"}))
    if minimum and minimum[0] < limits["min_insync"]:
        weak.append(f"{MIN_ISR}={minimum[0]} at {_at(minimum[1])}")
        lines, before = _of_all_topics(seen, int(limits["min_insync"]))
        by_hand += before
    if weak:
        yield Found("cluster", "; ".join(weak), lines, "; ".join(by_hand))


def _of_all_topics(seen: Seen, minimum: int) -> tuple[tuple[str, ...], list[str]]:
    """The line that raises min.insync.replicas of brokers, and what comes before it. It is also that of each topic
    without one of its own: those with so few replicas would refuse writers with one broker away."""
    line = commands.set_on_brokers(seen, {MIN_ISR: str(minimum)})
    meant = f"{MIN_ISR} of brokers is also that of each topic without its own"
    if seen.in_part:
        return (), [f"{meant}: look at all topics before it is raised"]
    those = [one for one in seen.topics if not one.owns(MIN_ISR)]
    few = [one for one in those if one.copies <= minimum]
    pins = [commands.set_on_topic(seen, one.name, {MIN_ISR: one.says(MIN_ISR) or "1"}) for one in few]
    settled = all(one.settled for one in those)
    if settled and not pins:
        return (line,), []
    keep = f"{counted(len(few), 'topic')} of no more than {counted(minimum, 'replica')} must keep theirs: first"
    first = [f"{keep} {listed(pins, NAMED)}"] if pins else []
    when = "then" if settled else "once each partition of those topics has a leader and all replicas in sync"
    return (), [meant, *first, f"{when}: {line}"]


BROKER_RULES = (
    Rule(
        "racks-unset",
        Weight.WARNING,
        "brokers do not say in which rack they are",
        "partitions whose replicas all happen to stand in one zone",
        "a zone loses its power or its network",
        _racks_unset,
    ),
    Rule(
        "mixed-versions",
        Weight.WARNING,
        "brokers are of several versions",
        "what only the newer ones can do, and clients that meet both",
        "a leader moves to a broker of the other version",
        _versions,
    ),
    Rule(
        "upgrade-unfinished",
        Weight.NOTE,
        "all brokers know a newer metadata.version than the cluster works by",
        "features and repairs of the newer version, which stay off",
        "always; once it is raised, there is no way back to the older version",
        _unfinished,
    ),
    Rule(
        "auto-create",
        Weight.WARNING,
        "a topic is made by whoever asks for it",
        "records in topics of misspelt names, and the defaults of brokers in place of what was decided",
        "a client names a topic wrongly, or one that was deleted",
        _auto_create,
    ),
    Rule(
        "offsets-retention",
        Weight.WARNING,
        "places of groups are forgotten soon",
        "records never read (auto.offset.reset=latest) or read again (earliest)",
        "a group is without members for so long, then comes back",
        _offsets_retention,
        (Limit("hours", 168, "hours for which places should be kept; Kafka's default is 168"),),
        story="offsets-retention",
    ),
    Rule(
        "transaction-timeout",
        Weight.WARNING,
        "a transaction may stay open for long",
        "reading with read_committed: nothing behind the open transaction is delivered",
        "a transactional producer dies with a transaction open and a long timeout",
        _transaction_timeout,
        (Limit("minutes", 15, "minutes that a transaction may ask for; Kafka's default is 15"),),
    ),
    Rule(
        "producer-expiry",
        Weight.WARNING,
        "brokers forget producers soon",
        "records written twice, and fencing of an old producer",
        "a producer is silent for so long, then sends a batch again",
        _transactional_expiry,
        (Limit("hours", 24, "hours for which producers should be remembered"),),
        story="retry-twice",
    ),
    Rule(
        "new-topics",
        Weight.NOTE,
        "new topics are weak unless whoever makes them says otherwise",
        "records of topics that are yet to be made",
        "one or two brokers are lost",
        _new_topics,
        story="min-insync-1",
    ),
)
