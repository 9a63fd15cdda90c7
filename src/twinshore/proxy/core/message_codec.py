"""Kafka messages other than records, by kio in any version, and leader epochs as clients see them.

Each cluster counts leader epochs separately, and clients ignore lower epochs than they know. So clients see a *base*
added in each term, above the epochs of all earlier terms. The base depends on the term alone, so all proxies have the
same. An epoch of an earlier term ended where the topic moved. Topics that were never switched have no term, and their
epochs are hidden.
"""

from __future__ import annotations

import dataclasses
import io
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from twinshore.config.errors import WireError
from twinshore.kafka.protocol import fetch
from twinshore.kafka.protocol.apis import METADATA, api_name
from twinshore.kafka.protocol.framing import FrameSizeError
from twinshore.kafka.protocol.primitives import PAST_END_ERRORS
from twinshore.kafka.protocol.record_batch import PREFIX_BYTES
from twinshore.kafka.protocol.requests import ARRAY_ELEMENTS_MAX, Request
from twinshore.kafka.protocol.response_check import check_response
from twinshore.proxy.core.model import BrokerId, BrokerRequest, Parts, RoutingTable, SubRequests

NO_EPOCH: Final = -1
# More than the leaders of a partition in one term.
LEADER_EPOCHS_PER_TERM: Final = 1 << 20
TERMS_MAX: Final = 1 << 11
_LENGTH_AND_EPOCH: Final = struct.Struct(">8xii")
_EPOCH: Final = struct.Struct(">i")
# Older formats have the CRC in place of the epoch.
_MAGIC_AT: Final = PREFIX_BYTES + 4
_MAGIC: Final = 2
# The handoff offset of a topic without known points.
_NOWHERE: Final = (1 << 63) - 1


def get_epoch_base(topic: str, table: RoutingTable) -> int | None:
    """Returns the base; None if the topic's epochs are hidden."""
    lead = table.leads.get(topic)
    return (lead.term - 1) * LEADER_EPOCHS_PER_TERM if lead is not None and lead.term <= TERMS_MAX else None


def to_client_epoch(epoch: int, base: int | None) -> int:
    """Convert the home's epoch for clients."""
    return base + epoch if base is not None and 0 <= epoch < LEADER_EPOCHS_PER_TERM else NO_EPOCH


def to_home_epoch(epoch: int, base: int | None) -> int:
    """Convert a client's epoch; `NO_EPOCH` if of another term."""
    return epoch - base if base is not None and 0 <= epoch - base < LEADER_EPOCHS_PER_TERM else NO_EPOCH


def is_earlier_term_epoch(epoch: int, base: int | None) -> bool:
    return base is not None and 0 <= epoch < base


def get_handoff_offset(topic: str, partition: int, table: RoutingTable) -> int:
    """Returns the offset up to which records of earlier terms are at the topic's home."""
    points = table.leads[topic].points
    return points[partition] if partition < len(points) else _NOWHERE


def to_broker_fetch(one: fetch.FetchRequestPartition, table: RoutingTable, cluster: str) -> fetch.FetchRequestPartition:
    """Convert epochs for the broker; none for a twin, which counts its own."""
    topic = str(one.topic)
    base = None if table.is_elsewhere(topic, cluster) else get_epoch_base(topic, table)
    epoch, last = to_home_epoch(one.leader_epoch, base), to_home_epoch(one.last_fetched_epoch, base)
    return one._replace(leader_epoch=epoch, last_fetched_epoch=last)


def to_client_fetch(answer: fetch.FetchResponse, table: RoutingTable, cluster: str) -> fetch.FetchResponse:
    """Convert epochs for clients, hidden for twins; the same object if unchanged."""
    parts = [_fetched(one, table, cluster) for one in answer.fetched]
    changed = any(one is not before for one, before in zip(parts, answer.fetched, strict=True))
    return answer._replace(fetched=parts) if changed else answer


def _fetched(one: fetch.FetchResponsePartition, table: RoutingTable, cluster: str) -> fetch.FetchResponsePartition:
    topic = str(one.topic)
    base, here = get_epoch_base(topic, table), not table.is_elsewhere(topic, cluster)
    if here and not base:
        return one
    if one.diverging_epoch is not None:
        epoch, end = one.diverging_epoch
        one = one._replace(diverging_epoch=(to_client_epoch(epoch, base), end) if here else None)
    if not one.records or len(one.records) < _LENGTH_AND_EPOCH.size:
        return one
    return one._replace(records=_restamped(one.records, base if here else None))


def _restamped(records: memoryview | bytes, base: int | None) -> memoryview:
    """Rewrite the batches' epochs, which no CRC covers. The last batch may be truncated."""
    out = bytearray(records)
    position, last = 0, len(out) - _MAGIC_AT - 1
    while position <= last:
        length, epoch = _LENGTH_AND_EPOCH.unpack_from(out, position)
        if out[position + _MAGIC_AT] >= _MAGIC:
            _EPOCH.pack_into(out, position + PREFIX_BYTES, to_client_epoch(epoch, base))
        if length <= 0:
            break
        position += PREFIX_BYTES + length
    return memoryview(out)


def strip_commit_epochs(asked: Any, table: RoutingTable) -> Any:
    """Remove converted epochs from a commit, which readers would take for the cluster's own. The same object if there
    are none.
    """
    topics = tuple(strip_topic_epochs(one) if get_epoch_base(str(one.name), table) else one for one in asked.topics)
    changed = any(one is not before for one, before in zip(topics, asked.topics, strict=True))
    return replace(asked, topics=topics) if changed else asked


def strip_topic_epochs(topic: Any) -> Any:
    """Remove leader epochs from committed offsets. A client would check them, perhaps on another cluster, where they
    mean nothing.
    """
    if topic.partitions and hasattr(topic.partitions[0], "committed_leader_epoch"):
        partitions = tuple(replace(one, committed_leader_epoch=NO_EPOCH) for one in topic.partitions)
        return replace(topic, partitions=partitions)
    return topic


# Defaults of these fields; others are zero, empty or null.
_USUAL: Final = dict.fromkeys(("generation_id", "node_id", "port", "producer_id", "committed_offset", "replica_id"), -1)
_ZEROS: Final[dict[str, Any]] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "bool": False,
    "error_code": ErrorCode(0),
    "datetime_i64": datetime.fromtimestamp(0, UTC),
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
}
# A TLS handshake, read as a frame size.
_HELLO = 0x1603
# The first bytes of a PROXY header, of either version.
_HEADERS = (0x0D0A0D0A, 0x50524F58)


@cache
def get_response_type(key: int, version: int) -> Any:
    return load_response_schema(key, version)


@cache
def get_request_type(key: int, version: int) -> Any:
    return load_request_schema(key, version)


@cache
def get_element_type(kind: Any, *names: str) -> Any:
    """Returns the element type of an array: `topics`, or `topics`, `partitions`."""
    for name in names:
        (field,) = [one for one in dataclasses.fields(kind) if one.name == name]
        kind = get_args(_without_null(field.type))[0]
    return kind


def decode_request(request: Request) -> Any:
    """Decode a request. WireError if invalid."""
    kind = get_request_type(request.key, request.version)
    return _read(kind, request.view[request.position :], request.key, ARRAY_ELEMENTS_MAX)


def decode_response(key: int, version: int, body: memoryview) -> Any:
    """Decode a response. WireError if invalid."""
    return _read(get_response_type(key, version), body, key)


def _read(kind: Any, body: memoryview, key: int, elements_max: int = sys.maxsize) -> Any:
    try:
        found = entity_reader(kind)(check_response(body.toreadonly(), kind, elements_max), 0)[0]
        _check_arrays(found)
        return found
    except WireError as error:
        raise error.within(api_name(key)) from error
    except (SerialError, ValueError, OverflowError, *PAST_END_ERRORS) as error:
        raise WireError(f"{api_name(key)}: it cannot be read: {error or type(error).__name__}") from error


def _check_arrays(entity: Any) -> None:
    """Refuse null in an array that must not be null, as kio accepts that."""
    kind: Any = type(entity)
    for name, may_be_null in _arrays(kind):
        value = getattr(entity, name)
        if value is None and not may_be_null:
            raise WireError(f"{name} is null")
        if value and dataclasses.is_dataclass(value[0]):
            for one in value:
                _check_arrays(one)


@cache
def _arrays(kind: Any) -> list[tuple[str, bool]]:
    """Returns the arrays of a message, and whether each may be null."""
    fields = [(one.name, one.type, _without_null(one.type)) for one in dataclasses.fields(kind)]
    return [(name, whole is not bare) for name, whole, bare in fields if get_origin(bare) is tuple]


def encode_message(entity: Any) -> Parts:
    buffer = io.BytesIO()
    try:
        entity_writer(type(entity))(buffer, entity)
    except (SerialError, struct.error, ValueError, OverflowError) as error:
        raise WireError(f"{type(entity).__name__} cannot be written: {error}") from error
    return [buffer.getvalue()]


def build_message(kind: Any, /, **values: Any) -> Any:
    """Build a message or part with those values that its version has, else Kafka's defaults.

    An error code may be any number, and an element of an array a dictionary of its values.
    """
    given = _defaults(kind).copy()
    for name in given.keys() & values.keys():
        value = values[name]
        if isinstance(value, list | tuple):
            part = get_element_type(kind, name)
            value = tuple(build_message(part, **one) if isinstance(one, dict) else one for one in value)
        given[name] = to_error_code(value) if isinstance(given[name], ErrorCode) else value
    return kind(**given)


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """Returns the message's fields with their defaults."""
    fields = dataclasses.fields(kind)
    found = {one.name: _zero(one) if one.default is dataclasses.MISSING else one.default for one in fields}
    return found | {name: value for name, value in _USUAL.items() if name in found}


def _zero(field: dataclasses.Field[Any]) -> Any:
    if field.type is not _without_null(field.type):
        return None
    return () if get_origin(field.type) is tuple else _ZEROS.get(field.metadata.get("kafka_type", ""), 0)


def _without_null(kind: Any) -> Any:
    if get_origin(kind) in (UnionType, Union):
        (kind,) = [one for one in get_args(kind) if one is not NoneType]
    return kind


def convert_message(kind: Any, entity: Any) -> Any:
    """Convert to another version of the message."""
    return build_message(kind, **dataclasses.asdict(entity))


def build_request(key: int, version: int, /, **values: Any) -> Any:
    return build_message(get_request_type(key, version), **values)


def build_response(request: Request, **values: Any) -> Parts:
    """Build the response with these values, else Kafka's defaults."""
    return encode_message(build_message(get_response_type(request.key, request.version), **values))


def build_error_response(request: Request, code: int, **values: Any) -> Parts:
    """Build a response with this top-level error."""
    return build_response(request, error_code=code, **values)


def build_topic_errors(kind: Any, topic: Any, code: int) -> Any:
    """Build a response's topic with this error at each partition."""
    numbers = getattr(topic, "partition_indexes", None)
    if numbers is None:
        numbers = [one.partition_index for one in topic.partitions]
    partitions = [{"partition_index": number, "error_code": code} for number in numbers]
    return build_message(get_element_type(kind, "topics"), name=topic.name, partitions=partitions)


def build_commit_errors(request: Request, topics: Sequence[Any], code: int) -> Parts:
    """Build the response to a commit, also in a transaction, with this error at each partition."""
    kind = get_response_type(request.key, request.version)
    return build_response(request, topics=[build_topic_errors(kind, one, code) for one in topics])


def to_error_code(code: int) -> ErrorCode:
    return ErrorCode(int(code))


def ask_brokers(questions: Mapping[BrokerId, Any]) -> SubRequests[dict[BrokerId, Any]]:
    """Ask brokers. Returns their decoded responses; None for each that does not come."""
    requests = [
        BrokerRequest(broker, question.__api_key__, question.__version__, encode_message(question))
        for broker, question in questions.items()
    ]
    bodies = (yield requests) if requests else []
    pairs = zip(requests, bodies, strict=True)
    return {one.place: None if body is None else decode_response(one.key, one.version, body) for one, body in pairs}


def ask_broker(broker: BrokerId, question: Any) -> SubRequests[Any]:
    """Ask one broker. Returns the decoded response; None without one."""
    return (yield from ask_brokers({broker: question}))[broker]


def ask_metadata(topics: Mapping[BrokerId, Sequence[str]], table: RoutingTable) -> SubRequests[dict[BrokerId, Any]]:
    """Ask brokers about topics without creating any. Returns the responses; None for each that does not come."""
    kind, questions = get_request_type(METADATA, table.offers[METADATA][1]), {}
    for broker, names in topics.items():
        named = [{"name": one} for one in names]
        questions[broker] = build_message(kind, topics=named, allow_auto_topic_creation=False)
    return (yield from ask_brokers(questions))


def describe_wire_error(error: WireError) -> str:
    """Returns why a client that sent this is disconnected."""
    if isinstance(error, FrameSizeError) and error.size >> 16 == _HELLO:
        return "it speaks TLS, and this port does not"
    if isinstance(error, FrameSizeError) and error.size in _HEADERS:
        return "it sends a PROXY header, and is not in [proxy] balancers"
    return f"it does not keep to the protocol: {error}"
