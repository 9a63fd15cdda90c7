"""A small model of Kafka's authorizer, as KIP-290 and the brokers' StandardAuthorizer have it."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

from twinshore.kafka.protocol.access_control import ANY_USER, WILDCARD, Acl, AclOperation, AclPermission, ResourceType

IMPLIED = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}
OPERATIONS = (
    *(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER),
    *(AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
)
Right = tuple[str, str, AclOperation, str]


def rights(
    rules: Collection[Acl], principals: Collection[str], hosts: Collection[str], topics: Collection[str], *, open_: bool
) -> frozenset[Right]:
    """All that these may do with topics from there, none of them a super user. `open_`: whether everybody may use a
    topic of which no rule speaks."""
    found: set[Right] = set()
    for topic in topics:
        about = [acl for acl in rules if acl.resource == ResourceType.TOPIC and acl.covers(topic)]
        for who, host in product(principals, hosts):
            mine = [acl for acl in about if acl.principal in (who, ANY_USER) and acl.host in (host, WILDCARD)]
            allowed = {acl.operation for acl in mine if acl.permission == AclPermission.ALLOW}
            denied = {acl.operation for acl in mine if acl.permission == AclPermission.DENY}
            may = [one for one in OPERATIONS if (_allows(one, allowed, denied) if about else open_)]
            found |= {(who, host, one, topic) for one in may}
    return frozenset(found)


def _allows(operation: AclOperation, allowed: set[int], denied: set[int]) -> bool:
    """A denial denies what it names; what is allowed includes more."""
    if denied & {AclOperation.ALL, operation}:
        return False
    return bool(allowed & ({AclOperation.ALL, operation} | IMPLIED.get(operation, set())))
