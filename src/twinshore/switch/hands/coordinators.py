"""Whether the transaction coordinators of a site that returned have read their logs. Only asks.

Until then a broker lists nothing of what it will end, mostly without an error; asked about an id it says so. What was
open when the site died they end by themselves, denied or not.
"""

from __future__ import annotations

from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, kafka_error
from twinshore.kafka.metadata import NO_LEADER
from twinshore.wire.transactions import TRANSACTIONS_KEY, Transaction, encode_transactions, parse_transactions

LOG = "__transaction_state"
UNKNOWN_ID = 105
LOADING = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE})
PROBES_MAX = 100_000


def loading(cluster: KafkaCluster) -> str:
    """Which coordinator has not read its part of the log of transactions yet, in words; empty once all have."""
    seen = cluster.metadata([LOG], refresh=True).topics.get(LOG)
    if seen is None or seen.error == Code.UNKNOWN_TOPIC_OR_PARTITION:
        return ""  # no transaction was ever begun there
    if seen.error:
        raise kafka_error(seen.error, f"{cluster.name}: {LOG}", right=f"Describe on topic {LOG}")
    for one in seen.partitions:
        if one.leader == NO_LEADER:
            return f"part {one.partition} of the log of transactions has no coordinator on {cluster.name} yet"
        if not _has_read(cluster, one.leader, id_in(one.partition, len(seen.partitions))):
            return f"broker {one.leader} of {cluster.name} still reads its log of transactions"
    return ""


def part_of(name: str, parts: int) -> int:
    """In which part of the log of transactions an id is: by what Java makes of the text, without its sign."""
    found = 0
    for letter in name:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return (0 if found == 1 << 31 else min(found, (1 << 32) - found)) % parts


def id_in(part: int, parts: int) -> str:
    """An id that nobody uses, in this part."""
    return next(name for number in range(PROBES_MAX) if part_of(name := f"probe-{number}", parts) == part)


def _has_read(cluster: KafkaCluster, node: int, probe: str) -> bool:
    def ask(line: Connection, timeout_s: float) -> list[Transaction]:
        version, body = line.spoken(TRANSACTIONS_KEY), encode_transactions([probe])
        return line.ask(TRANSACTIONS_KEY, version, body, lambda view: parse_transactions(view, 0), timeout_s=timeout_s)

    (told,) = cluster.at(node, "transactions", ask)
    if told.error in LOADING:
        return False
    if told.error not in (0, UNKNOWN_ID):
        right = "Describe on all transactional ids"
        raise kafka_error(told.error, f"{cluster.name}: transactional id {probe}", right=right)
    return True
