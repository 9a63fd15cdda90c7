"""The meaning of Kafka's error codes; the only table of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

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
    TRANSACTIONAL_ID_NOT_FOUND = 105
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

_SENTENCES = {
    -1: "the broker reports an error without a name",
    0: "no error",
    1: "the offset lies outside the log",
    2: "the batch's checksum or size is wrong, or a compacted topic got no key",
    3: "the broker does not host this partition",
    5: "the partition has no leader at this moment",
    6: "the partition's leader has moved to another broker",
    7: "the replicas did not confirm in time",
    9: "the replica is not available",
    10: "the batch exceeds the topic's limit",
    12: "the metadata of the committed offset is too long for the brokers",
    13: "the broker lost a connection it needed",
    14: "the coordinator is still loading",
    15: "the coordinator is not available yet",
    16: "the coordinator has moved to another broker",
    17: "the topic name is not allowed",
    18: "the batch exceeds the broker's segment size",
    19: "fewer replicas in sync than min.insync.replicas; nothing was written",
    20: "written, then fewer replicas in sync than needed",
    21: "acks is none of 0, 1, -1",
    28: "what is committed at once is larger than a batch may be there",
    29: "the right to this topic is missing",
    30: "the right to this group is missing",
    31: "a right on the cluster is missing",
    32: "a record's timestamp is outside the topic's bounds",
    33: "the listener does not offer this SASL mechanism",
    34: "the broker did not expect a SASL message here",
    35: "the broker does not know this version of the API",
    36: "a topic of this name exists",
    37: "the partition count is not possible",
    38: "the replication factor is larger than the number of brokers available",
    40: "a setting's value is not accepted",
    41: "the controller has moved",
    42: "the broker finds the request malformed",
    44: "the cluster's own policy forbids it",
    45: "the batch does not follow the producer's last one",
    46: "the batch is older than the ones the broker remembers",
    47: "a newer epoch of this producer has fenced this one",
    48: "the transaction is not in a state that allows this",
    49: "the producer id does not belong to the transactional id",
    51: "an earlier transaction is still being completed",
    52: "a marker with a higher coordinator epoch came before",
    53: "the right to this transactional id is missing",
    54: "the cluster has no authorizer",
    56: "the broker's disk failed",
    58: "the broker does not accept these credentials",
    59: "the broker has forgotten this producer id",
    60: "the partitions are being moved",
    67: "the principal type is not supported",
    70: "the fetch session has gone",
    71: "the fetch session is at another epoch",
    72: "the leader has no such listener yet",
    73: "the cluster does not allow topics to be deleted",
    74: "the leader epoch is older than the broker's",
    75: "the leader epoch is newer than the broker's",
    76: "the broker does not accept this compression",
    78: "the new leader does not know its high watermark yet",
    87: "the broker refuses a record or the batch's shape",
    88: "a transaction's offsets are still pending",
    89: "a quota was exceeded",
    90: "a newer producer with the same id has taken over",
    100: "no topic has this id any more",
    103: "the topic was deleted and created again",
    106: "the fetch session mixes topic ids",
}
_HINTS = {
    -1: "see its log",
    10: "raise max.message.bytes on the topic",
    12: "raise offset.metadata.max.bytes on its brokers",
    28: "raise max.message.bytes of __consumer_offsets",
    29: "at the source grant Describe and Read on it; at the target Describe, Create, Write, Alter, AlterConfigs",
    30: "grant Describe on it at the source, Read at the target",
    31: "grant Describe, Create, Alter and IdempotentWrite on the cluster",
    32: "open message.timestamp.after.max.ms and message.timestamp.before.max.ms on the topic",
    38: "choose a smaller replication factor or start more brokers",
    44: "ask the cluster's owner about its create.topic.policy or alter.config.policy",
    53: "grant Write and Describe on it",
}
_UNKNOWN_OUTCOME = frozenset({-1, 7, 13, 20, 56})
# Where Twinshore judges otherwise than Kafka's own clients.
_RETRIABLE = {-1: True, 2: False, 60: True, 100: False, 103: False}


@cache
def error_kind(code: int) -> ErrorKind:
    """Returns what `code` means; unknown codes get a generic kind."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return ErrorKind(f"UNKNOWN_CODE_{code}", True, "an error that this version of Twinshore does not know", True)
    sentence, retriable = _SENTENCES.get(code, known.name.replace("_", " ")), _RETRIABLE.get(code, known.retriable)
    return ErrorKind(known.name.upper(), retriable, sentence, code in _UNKNOWN_OUTCOME, _HINTS.get(code, ""))


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
