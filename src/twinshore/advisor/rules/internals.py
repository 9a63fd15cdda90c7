"""Rules about the topics in which Kafka keeps groups' places and transactions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from twinshore.advisor import commands
from twinshore.advisor.profiles import MIN_ISR
from twinshore.advisor.rule import Change, Found, Limit, Rule, Weight
from twinshore.advisor.seen import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Seen, Topic
from twinshore.fleet.sentences import counted

Judge = Callable[[Seen, Mapping[str, float]], Iterator[Found]]


def _weak(name: str, factor: str) -> Judge:
    def judge(seen: Seen, limits: Mapping[str, float]) -> Iterator[Found]:
        copies, minimum = int(limits["copies"]), int(limits["min_insync"])
        topic = seen.topic(name)
        if topic is not None:
            yield from _made(seen, topic, copies, minimum)
            return
        # It is made at its first use, by what brokers say then.
        low = [one for one in seen.brokers if (one.number(factor) or copies) < copies]
        if low:
            nodes = ", ".join(str(one.node) for one in low)
            evidence = f"it is not made yet; {factor}={low[0].number(factor)} at broker {nodes}"
            yield Found(f"topic {name}", evidence, by_hand=commands.in_properties({factor: str(copies)}))

    return judge


def _made(seen: Seen, topic: Topic, copies: int, minimum: int) -> Iterator[Found]:
    weak, lines, by_hand = [], [], ""
    if topic.copies < copies:
        weak.append(counted(topic.copies, "replica"))
        moved = commands.placed(seen, topic, copies)
        if moved is None:
            by_hand = f"start {counted(copies - len(seen.brokers), 'more broker')}, then reassign its partitions"
        else:
            lines.append(commands.reassign(seen, topic.name, moved))
    told = topic.number(MIN_ISR)
    safe = None
    if told is not None and told < minimum:
        weak.append(f"{MIN_ISR}={told}")
        line = commands.set_on_topic(seen, topic.name, {MIN_ISR: str(minimum)})
        if topic.in_sync >= minimum:
            lines.append(line)
        else:
            # Before, it would refuse what groups commit.
            by_hand = f"{by_hand or 'reassign its partitions'}; once the new replicas are in sync: {line}"
        if topic.in_sync > minimum:
            safe = Change(topic.name, ((MIN_ISR, str(minimum)),))
    if weak:
        yield Found(f"topic {topic.name}", " and ".join(weak), tuple(lines), by_hand, safe)


LIMITS = (
    Limit("copies", 3, "replicas that it should have"),
    Limit("min_insync", 2, "min.insync.replicas that it should have"),
)

INTERNAL_RULES = (
    Rule(
        "offsets-topic",
        Weight.GRAVE,
        "places of consumer groups are kept weakly",
        "places of all groups, so records read again or never; and reading of groups, while their coordinator is away",
        "one or two brokers are lost",
        _weak(OFFSETS_TOPIC, "offsets.topic.replication.factor"),
        LIMITS,
    ),
    Rule(
        "transactions-topic",
        Weight.GRAVE,
        "the state of transactions is kept weakly",
        "what is known of transactions, so that half of one may show; and writing of transactional producers",
        "one or two brokers are lost",
        _weak(TRANSACTIONS_TOPIC, "transaction.state.log.replication.factor"),
        LIMITS,
    ),
)
