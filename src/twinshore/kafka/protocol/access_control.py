"""ACLs, client quotas and SCRAM users as values, with Kafka's own numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

WILDCARD = "*"
ANY_USER = "User:*"


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclPermission(IntEnum):
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One ACL. Fields are plain numbers, since a newer Kafka may have unknown operations."""

    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        where = f"{kafka_name(ResourceType, self.resource)} {self.name}"
        if self.pattern == PatternType.PREFIXED:
            where += " and all it begins"
        elif self.name == WILDCARD:
            where = f"every {kafka_name(ResourceType, self.resource)}"
        who = self.principal if self.host == WILDCARD else f"{self.principal} from {self.host}"
        permission, operation = kafka_name(AclPermission, self.permission), kafka_name(AclOperation, self.operation)
        return f"{permission} {who} {operation} on {where}"

    def names_one(self) -> bool:
        return self.pattern != PatternType.PREFIXED and self.name != WILDCARD

    def covers(self, name: str) -> bool:
        if self.pattern == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (WILDCARD, name)


def kafka_name(kind: type[IntEnum], number: int) -> str:
    """Returns Kafka's name of a number, in lower case."""
    try:
        return kind(number).name.lower().replace("_", " ")
    except ValueError:
        return f"{kind.__name__.lower()} {number}"


@dataclass(frozen=True, slots=True, order=True)
class QuotaEntity:
    """The entity of a client quota: pairs of kind and name; an empty name is Kafka's default."""

    parts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return " ".join(f"{kind} {name or '(default)'}" for kind, name in self.parts)

    def name_of(self, kind: str) -> str | None:
        return dict(self.parts).get(kind)


@dataclass(frozen=True, slots=True, order=True)
class ScramUser:
    """A SCRAM user, as far as a cluster tells. `mechanism` is Kafka's name."""

    name: str
    mechanism: str
    iterations: int

    def __str__(self) -> str:
        return f"{self.name} {self.mechanism} with {self.iterations} iterations"
