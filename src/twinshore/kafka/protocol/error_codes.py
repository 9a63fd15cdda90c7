"""The meaning of Kafka's error codes; the only table of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from kio.schema.errors import ErrorCode

from twinshore.config.errors import KafkaError


class Code(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INCONSISTENT_GROUP_PROTOCOL = 23
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    STALE_MEMBER_EPOCH = 113
    UNSUPPORTED_ENDPOINT_TYPE = 115


UNKNOWN_ERROR = Code.UNKNOWN_SERVER_ERROR.value  # as brokers call an error without a name


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """`retriable`: the request may succeed later, perhaps at another leader. `unknown_outcome`: the write may be in the
    log, so read the log end before another.
    """

    name: str
    retriable: bool
    sentence: str
    unknown_outcome: bool = False
    hint: str = ""


DETAIL_MAX = 240
_FIELDS = re.compile(r"(?<=\w)[(\[]\w+=")
_OBJECT = re.compile(r"(?<=\w)[(\[][^()\[\]]*[)\]]")
_IDENTITY = re.compile(r"@[0-9a-f]{4,8}\b")
_TWICE = re.compile(r"\b(\w+) \1\b")

_AGAIN = True
_FINAL = False
_KINDS: dict[int, ErrorKind] = {
    -1: ErrorKind("UNKNOWN_SERVER_ERROR", _AGAIN, "the broker met an error it has no name for", True, "see its log"),
    0: ErrorKind("NONE", _FINAL, "no error"),
    1: ErrorKind("OFFSET_OUT_OF_RANGE", _FINAL, "the offset lies outside the log"),
    2: ErrorKind("CORRUPT_MESSAGE", _FINAL, "the batch's checksum or size is wrong, or a compacted topic got no key"),
    3: ErrorKind("UNKNOWN_TOPIC_OR_PARTITION", _AGAIN, "the broker does not host this partition"),
    5: ErrorKind("LEADER_NOT_AVAILABLE", _AGAIN, "the partition has no leader at this moment"),
    6: ErrorKind("NOT_LEADER_OR_FOLLOWER", _AGAIN, "the partition's leader has moved to another broker"),
    7: ErrorKind("REQUEST_TIMED_OUT", _AGAIN, "the replicas did not confirm in time", True),
    9: ErrorKind("REPLICA_NOT_AVAILABLE", _AGAIN, "the replica is not available"),
    10: ErrorKind(
        "MESSAGE_TOO_LARGE", _FINAL, "the batch exceeds the topic's limit", hint="raise max.message.bytes on the topic"
    ),
    12: ErrorKind(
        "OFFSET_METADATA_TOO_LARGE",
        _FINAL,
        "the text that the group's consumer left beside its place is too long there",
        hint="raise offset.metadata.max.bytes on its brokers",
    ),
    13: ErrorKind("NETWORK_EXCEPTION", _AGAIN, "the broker lost a connection it needed", True),
    14: ErrorKind("COORDINATOR_LOAD_IN_PROGRESS", _AGAIN, "the coordinator is still loading"),
    15: ErrorKind("COORDINATOR_NOT_AVAILABLE", _AGAIN, "the coordinator is not available yet"),
    16: ErrorKind("NOT_COORDINATOR", _AGAIN, "the coordinator has moved to another broker"),
    17: ErrorKind("INVALID_TOPIC_EXCEPTION", _FINAL, "the topic name is not allowed"),
    18: ErrorKind("RECORD_LIST_TOO_LARGE", _FINAL, "the batch exceeds the broker's segment size"),
    19: ErrorKind(
        "NOT_ENOUGH_REPLICAS", _AGAIN, "fewer replicas in sync than min.insync.replicas; nothing was written"
    ),
    20: ErrorKind("NOT_ENOUGH_REPLICAS_AFTER_APPEND", _AGAIN, "written, then fewer replicas in sync than needed", True),
    21: ErrorKind("INVALID_REQUIRED_ACKS", _FINAL, "acks is none of 0, 1, -1"),
    28: ErrorKind(
        "INVALID_COMMIT_OFFSET_SIZE",
        _FINAL,
        "what is committed at once is larger than a batch may be there",
        hint="raise max.message.bytes of __consumer_offsets",
    ),
    29: ErrorKind(
        "TOPIC_AUTHORIZATION_FAILED",
        _FINAL,
        "the right to this topic is missing",
        hint="at the source grant Describe and Read on it; at the target Describe, Create, Write, Alter, AlterConfigs",
    ),
    30: ErrorKind(
        "GROUP_AUTHORIZATION_FAILED",
        _FINAL,
        "the right to this group is missing",
        hint="grant Describe on it at the source, Read at the target",
    ),
    31: ErrorKind(
        "CLUSTER_AUTHORIZATION_FAILED",
        _FINAL,
        "a right on the cluster is missing",
        hint="grant Describe, Create, Alter and IdempotentWrite on the cluster",
    ),
    32: ErrorKind(
        "INVALID_TIMESTAMP",
        _FINAL,
        "a record's timestamp is outside the topic's bounds",
        hint="open message.timestamp.after.max.ms and message.timestamp.before.max.ms on the topic",
    ),
    33: ErrorKind("UNSUPPORTED_SASL_MECHANISM", _FINAL, "the listener does not offer this SASL mechanism"),
    34: ErrorKind("ILLEGAL_SASL_STATE", _FINAL, "the broker did not expect a SASL message here"),
    35: ErrorKind("UNSUPPORTED_VERSION", _FINAL, "the broker does not know this version of the API"),
    36: ErrorKind("TOPIC_ALREADY_EXISTS", _FINAL, "a topic of this name exists"),
    37: ErrorKind("INVALID_PARTITIONS", _FINAL, "the partition count is not possible"),
    38: ErrorKind(
        "INVALID_REPLICATION_FACTOR",
        _FINAL,
        "the replication factor is larger than the number of brokers available",
        hint="choose a smaller replication factor or start more brokers",
    ),
    40: ErrorKind("INVALID_CONFIG", _FINAL, "a setting's value is not accepted"),
    41: ErrorKind("NOT_CONTROLLER", _AGAIN, "the controller has moved"),
    42: ErrorKind("INVALID_REQUEST", _FINAL, "the broker finds the request malformed"),
    44: ErrorKind(
        "POLICY_VIOLATION",
        _FINAL,
        "the cluster's own policy forbids it",
        hint="ask the cluster's owner about its create.topic.policy or alter.config.policy",
    ),
    45: ErrorKind("OUT_OF_ORDER_SEQUENCE_NUMBER", _FINAL, "the batch does not follow the producer's last one"),
    46: ErrorKind("DUPLICATE_SEQUENCE_NUMBER", _FINAL, "the batch is older than the ones the broker remembers"),
    47: ErrorKind("INVALID_PRODUCER_EPOCH", _FINAL, "a newer epoch of this producer has fenced this one"),
    48: ErrorKind("INVALID_TXN_STATE", _FINAL, "the transaction is not in a state that allows this"),
    49: ErrorKind("INVALID_PRODUCER_ID_MAPPING", _FINAL, "the producer id does not belong to the transactional id"),
    51: ErrorKind("CONCURRENT_TRANSACTIONS", _AGAIN, "an earlier transaction is still being completed"),
    52: ErrorKind("TRANSACTION_COORDINATOR_FENCED", _FINAL, "a marker with a higher coordinator epoch came before"),
    53: ErrorKind(
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        _FINAL,
        "the right to this transactional id is missing",
        hint="grant Write and Describe on it",
    ),
    54: ErrorKind("SECURITY_DISABLED", _FINAL, "the cluster has no authorizer"),
    56: ErrorKind("KAFKA_STORAGE_ERROR", _AGAIN, "the broker's disk failed", True),
    58: ErrorKind("SASL_AUTHENTICATION_FAILED", _FINAL, "the broker does not accept these credentials"),
    59: ErrorKind("UNKNOWN_PRODUCER_ID", _FINAL, "the broker has forgotten this producer id"),
    60: ErrorKind("REASSIGNMENT_IN_PROGRESS", _AGAIN, "the partitions are being moved"),
    67: ErrorKind("INVALID_PRINCIPAL_TYPE", _FINAL, "the principal type is not supported"),
    70: ErrorKind("FETCH_SESSION_ID_NOT_FOUND", _AGAIN, "the fetch session has gone"),
    71: ErrorKind("INVALID_FETCH_SESSION_EPOCH", _AGAIN, "the fetch session is at another epoch"),
    72: ErrorKind("LISTENER_NOT_FOUND", _AGAIN, "the leader has no such listener yet"),
    73: ErrorKind("TOPIC_DELETION_DISABLED", _FINAL, "the cluster does not allow topics to be deleted"),
    74: ErrorKind("FENCED_LEADER_EPOCH", _AGAIN, "the leader epoch is older than the broker's"),
    76: ErrorKind("UNSUPPORTED_COMPRESSION_TYPE", _FINAL, "the broker does not accept this compression"),
    75: ErrorKind("UNKNOWN_LEADER_EPOCH", _AGAIN, "the leader epoch is newer than the broker's"),
    78: ErrorKind("OFFSET_NOT_AVAILABLE", _AGAIN, "the new leader does not know its high watermark yet"),
    87: ErrorKind("INVALID_RECORD", _FINAL, "the broker refuses a record or the batch's shape"),
    88: ErrorKind("UNSTABLE_OFFSET_COMMIT", _AGAIN, "a transaction's offsets are still pending"),
    89: ErrorKind("THROTTLING_QUOTA_EXCEEDED", _AGAIN, "a quota was exceeded"),
    90: ErrorKind("PRODUCER_FENCED", _FINAL, "a newer producer with the same id has taken over"),
    100: ErrorKind("UNKNOWN_TOPIC_ID", _FINAL, "no topic has this id any more"),
    103: ErrorKind("INCONSISTENT_TOPIC_ID", _FINAL, "the topic was deleted and created again"),
    106: ErrorKind("FETCH_SESSION_TOPIC_ID_ERROR", _AGAIN, "the fetch session mixes topic ids"),
}


def error_kind(code: int) -> ErrorKind:
    """Returns what `code` means; unknown codes get a generic kind."""
    known = _KINDS.get(code)
    if known is not None:
        return known
    try:
        named = ErrorCode(code)
    except ValueError:
        return ErrorKind(f"UNKNOWN_CODE_{code}", _AGAIN, "an error that this version of Twinshore does not know", True)
    return ErrorKind(named.name.upper(), named.retriable, named.name.replace("_", " "))


def shorten_broker_message(said: str) -> str:
    """Remove Java objects, as in "Request(processor=2, session=Session@45e1b9e2)", which tell an operator nothing and
    always differ.
    """
    if _FIELDS.search(said):
        while (shorter := _OBJECT.sub("", said)) != said:
            said = shorter
        said = _TWICE.sub(r"\1", _FIELDS.split(said)[0])
    said = _IDENTITY.sub("", said)
    return said if len(said) <= DETAIL_MAX else f"{said[:DETAIL_MAX]} ..."


def kafka_error(code: int, place: str, *, detail: str = "", right: str = "") -> KafkaError:
    """Returns the error for `code`. `place`: the sentence's subject, such as "east: orders-3". `right`: what to grant
    if the request was not authorized.
    """
    kind = error_kind(code)
    detail = shorten_broker_message(detail)
    told = f": {detail}" if detail and detail.lower().rstrip(".") != kind.sentence else ""
    message = f"{place}: {kind.sentence} ({kind.name}, code {code}){told}"
    hint = f"grant {right}" if right and kind.name.endswith("AUTHORIZATION_FAILED") else kind.hint
    return KafkaError(message, code=code, retriable=kind.retriable, hint=hint)
