"""A small model of Kafka's authorizer, as KIP-290 and the brokers' StandardAuthorizer have it."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

from twinshore.kafka.protocol.rights import EVERYBODY, WILDCARD, Acl, Operation, Permission, Resource

IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
OPERATIONS = (
    *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER),
    *(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
)
Right = tuple[str, str, Operation, str]


def rights(
    rules: Collection[Acl], principals: Collection[str], hosts: Collection[str], topics: Collection[str], *, open_: bool
) -> frozenset[Right]:
    """All that these may do with topics from there, none of them a super user. `open_`: whether everybody may use a
    topic of which no rule speaks."""
    found: set[Right] = set()
    for topic in topics:
        about = [acl for acl in rules if acl.resource == Resource.TOPIC and acl.covers(topic)]
        for who, host in product(principals, hosts):
            mine = [acl for acl in about if acl.principal in (who, EVERYBODY) and acl.host in (host, WILDCARD)]
            allowed = {acl.operation for acl in mine if acl.permission == Permission.ALLOW}
            denied = {acl.operation for acl in mine if acl.permission == Permission.DENY}
            may = [one for one in OPERATIONS if (_allows(one, allowed, denied) if about else open_)]
            found |= {(who, host, one, topic) for one in may}
    return frozenset(found)


def _allows(operation: Operation, allowed: set[int], denied: set[int]) -> bool:
    """A denial denies what it names; what is allowed includes more."""
    if denied & {Operation.ALL, operation}:
        return False
    return bool(allowed & ({Operation.ALL, operation} | IMPLIED.get(operation, set())))
