"""Rules about the topics in which Kafka keeps groups' places, transactions, and what share groups have done. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from twinshore.advisor import commands
from twinshore.advisor.profiles import MIN_ISR
from twinshore.advisor.rule import Change, Found, Judge, Rule, Weight
from twinshore.advisor.seen import OFFSETS_TOPIC, SHARES_TOPIC, TRANSACTIONS_TOPIC, Seen, Topic
from twinshore.fleet.sentences import counted


def _weak(name: str, factor: str = "") -> Judge:
    """Of this topic. `factor`: what brokers make it by, where it is judged before they have."""

    def judge(seen: Seen, limits: Mapping[str, float]) -> Iterator[Found]:
        copies, minimum = int(limits["copies"]), int(limits["min_insync"])
        topic = seen.topic(name)
        if topic is not None:
            yield from _made(seen, topic, copies, minimum)
            return
        if not factor:
            return
        # It is made at its first use, by what brokers say then.
        low = [one for one in seen.brokers if (one.number(factor) or copies) < copies]
        if low:
            nodes = ", ".join(str(one.node) for one in low)
            evidence = f"it is not made yet; {factor}={low[0].number(factor)} at broker {nodes}"
            yield Found(f"topic {name}", evidence, by_hand=commands.in_properties({factor: str(copies)}))

    return judge


def _made(seen: Seen, topic: Topic, copies: int, minimum: int) -> Iterator[Found]:
    weak: list[str] = []
    lines: list[str] = []
    by_hand = ""
    if topic.copies < copies:
        weak.append(counted(topic.copies, "replica"))
        now, by_hand = commands.more_copies(seen, topic, copies)
        lines += now
    told = topic.number(MIN_ISR)
    safe = None
    if told is not None and told < minimum:
        weak.append(f"{MIN_ISR}={told}")
        if topic.copies >= minimum:
            now, later = commands.min_isr_on_topic(seen, topic, minimum)
            lines += now
            by_hand = "; ".join(filter(None, (by_hand, later)))
        else:
            # Before, it would refuse what groups commit.
            line = commands.set_on_topic(seen, topic.name, {MIN_ISR: str(minimum)})
            by_hand = f"{by_hand or 'reassign its partitions'}; once the new replicas are in sync: {line}"
        # By itself where it mends all of it, and where one replica may be lost then.
        if topic.settled and topic.copies >= max(copies, minimum + 1):
            safe = Change(topic.name, ((MIN_ISR, str(minimum)),))
    if weak:
        yield Found(f"topic {topic.name}", " and ".join(weak), tuple(lines), by_hand, safe)


INTERNAL_RULES = (
    Rule(
        "offsets-topic",
        Weight.GRAVE,
        "places of consumer groups are kept weakly",
        "places of all groups, so records read again or never; and reading of groups, while their coordinator is away",
        "one or two brokers are lost",
        _weak(OFFSETS_TOPIC, "offsets.topic.replication.factor"),
    ),
    Rule(
        "transactions-topic",
        Weight.GRAVE,
        "the state of transactions is kept weakly",
        "what is known of transactions, so that half of one may show; and writing of transactional producers",
        "one or two brokers are lost",
        _weak(TRANSACTIONS_TOPIC, "transaction.state.log.replication.factor"),
    ),
    # Few clusters have share groups: where nobody uses them, nothing is at risk.
    Rule(
        "shares-topic",
        Weight.GRAVE,
        "the state of share groups is kept weakly",
        "which records share groups were given and have done, so records handled again or never",
        "one or two brokers are lost",
        _weak(SHARES_TOPIC),
    ),
)
