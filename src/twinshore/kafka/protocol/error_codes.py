"""The meaning of Kafka's error codes; the only table of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib import resources

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

_UNKNOWN_OUTCOME = frozenset({-1, 7, 13, 20, 56})
# Where Twinshore judges otherwise than Kafka's own clients.
_RETRIABLE = {-1: True, 2: False, 60: True, 100: False, 103: False}


@cache
def _texts() -> dict[str, list[str]]:
    """By code: the sentence, and mostly no hint."""
    text = resources.files(__package__).joinpath("error_texts.json").read_text(encoding="utf-8")
    texts: dict[str, list[str]] = json.loads(text)
    return texts


@cache
def error_kind(code: int) -> ErrorKind:
    """Returns what `code` means; unknown codes get a generic kind."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return ErrorKind(f"UNKNOWN_CODE_{code}", True, "an error that this version of Twinshore does not know", True)
    sentence, *hint = _texts().get(str(code), [known.name.replace("_", " ")])
    retriable = _RETRIABLE.get(code, known.retriable)
    return ErrorKind(known.name.upper(), retriable, sentence, code in _UNKNOWN_OUTCOME, *hint)


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
