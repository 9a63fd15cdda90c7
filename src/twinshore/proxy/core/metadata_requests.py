"""Metadata, DescribeCluster, FindCoordinator and InitProducerId, which clients send to any broker.

Responses have the proxy's broker numbers, host and ports. Leader epochs of switched topics are above those of earlier
terms (`message_codec`): clients ignore lower epochs than they know, and would not follow a topic to a cluster with
fewer leaders.

Each cluster has its own id for a topic. Coordinators of the newer group protocol assign partitions by the ids of their
cluster. So clients get the ids of the groups' home, on whichever cluster a topic is; an id changes only when groups
move. A topic that the groups' home lacks gets no id. Records are written and read by name.

ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers go to partition leaders.

A topic's home does not know where an epoch of an earlier term ended. The proxy answers where the topic moved: home has
all records before, and no cluster has those after. So a client that had read further before a home died learns of a
truncation, as after an unclean election.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from twinshore.config.errors import WireError
from twinshore.config.model import is_internal_topic
from twinshore.kafka.protocol.apis import (
    DESCRIBE_PRODUCERS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
)
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core import message_codec, transaction_requests
from twinshore.proxy.core.api_versions import DELETE_RECORDS
from twinshore.proxy.core.message_codec import (
    build_error_response,
    build_message,
    convert_message,
    decode_request,
    decode_response,
    encode_message,
    get_element_type,
    get_request_type,
    get_response_type,
    to_error_code,
)
from twinshore.proxy.core.model import (
    ANY_BROKER,
    NO_BROKER,
    RESPONSE_TIMEOUT_S,
    BrokerAddressing,
    BrokerId,
    BrokerRequest,
    BrokerResponse,
    FanOut,
    FanOutSteps,
    ForwardRequest,
    Parts,
    RequestDecision,
    RespondNow,
    RoutingTable,
    add_cluster_mark,
    extract_cluster_mark,
    get_cluster_mark,
    remove_cluster_mark,
)
from twinshore.proxy.core.traffic import RequestCounter

_GROUP: Final = 0
_TRANSACTION: Final = 1
_BROKERS: Final = 1
_BATCHED: Final = 4
# The first version that can forbid topic creation. Older requests are sent as this one, and answered in their own.
NO_AUTO_CREATE_VERSION: Final = 4
NO_SUCH_KEY: Final = "only consumer groups and transactions have coordinators at this proxy"


def get_topic_id(topic: str, table: RoutingTable) -> UUID | None:
    """Returns the topic id for clients, if any."""
    if not table.stays(topic):
        return None
    found = table.clusters[table.group_home()].ids.get(topic)
    return UUID(bytes=found) if found else None


def with_topic_id(topic: Any, cluster: str, table: RoutingTable) -> Any:
    """Returns this cluster's topic with the id for clients, in versions that have ids."""
    if not hasattr(topic, "topic_id"):
        return topic
    fresh = cluster == table.group_home() and topic.topic_id is not None and table.stays(str(topic.name))
    found = topic.topic_id if fresh else get_topic_id(str(topic.name), table)
    return replace(topic, topic_id=found)


def resolve_topic_names(asked: Sequence[Any], table: RoutingTable) -> tuple[list[str], list[UUID]]:
    """Returns the names of a metadata request, and unknown ids."""
    names: list[str] = []
    unknown: list[UUID] = []
    for one in asked:  # Java sends an empty name beside an id
        topic_id = getattr(one, "topic_id", None)
        name = one.name if topic_id is None else table.topics_by_id.get(topic_id.bytes)
        if name is not None:
            names.append(str(name))
        elif topic_id is None:
            raise WireError("Metadata: a topic without a name and an id")
        else:
            unknown.append(topic_id)
    return names, unknown


def route_metadata(
    request: Request,
    addressing: BrokerAddressing,
    table: RoutingTable,
    news: Callable[[], None],
    counting: RequestCounter,
    copies: Callable[[str, RoutingTable], Sequence[str]] = lambda _topic, _table: (),
) -> FanOut:
    """Ask each topic's own cluster. `news` is called for topics that were not known.

    `copies`: clusters other than home where the client may read a topic. Leaders there are listed as replicas, since
    Java clients go to no others.
    """
    asked = decode_request(request)
    if request.version < NO_AUTO_CREATE_VERSION:
        asked = convert_message(get_request_type(METADATA, NO_AUTO_CREATE_VERSION), asked)
        if request.version == 0:  # which asks for all by naming none
            asked = replace(asked, topics=asked.topics or None)
        newer = Request(METADATA, NO_AUTO_CREATE_VERSION, *request[2:4], memoryview(b"".join(encode_message(asked))), 0)
        move = route_metadata(newer, addressing, table, news, counting, copies)
        return move._replace(errand=_as_older(request.version, move.errand))
    counting.looked(request)
    names, unknown = resolve_topic_names(asked.topics or (), table)
    wanted: dict[str, list[str] | None] = dict.fromkeys(table.clusters)
    if asked.topics is not None:
        wanted = _by_cluster(table, names, copies)
    if unknown:
        news()
    return FanOut(_metadata(request, asked, wanted, unknown, addressing, table, news, counting, copies))


def _as_older(version: int, errand: FanOutSteps) -> FanOutSteps:
    body = yield from errand
    newer = decode_response(METADATA, NO_AUTO_CREATE_VERSION, memoryview(b"".join(body)))
    return encode_message(convert_message(get_response_type(METADATA, version), newer))


def _by_cluster(
    table: RoutingTable, topics: Sequence[str], copies: Callable[[str, RoutingTable], Sequence[str]]
) -> dict[str, list[str] | None]:
    """Returns what to ask each cluster; topics without a known home are asked for everywhere."""
    wanted: dict[str, list[str] | None] = {}
    for topic in dict.fromkeys(topics):
        home = table.route(topic)
        for name in [home, *copies(topic, table)] if home else table.clusters:
            names = wanted.setdefault(name, [])
            assert names is not None
            names.append(topic)
    return wanted


def _metadata(
    request: Request,
    asked: Any,
    wanted: Mapping[str, list[str] | None],
    unknown: Sequence[UUID],
    addressing: BrokerAddressing,
    table: RoutingTable,
    news: Callable[[], None],
    counting: RequestCounter,
    copies: Callable[[str, RoutingTable], Sequence[str]],
) -> FanOutSteps:
    found, elsewhere, several = yield from _told_by_each(request, asked, wanted, addressing, table, copies)
    if any(table.route(topic) is None and not one.error_code for topic, one in found.items()):
        news()
    for topic in several:  # one is a twin; which one will be known soon
        found[topic] = replace(found[topic], error_code=to_error_code(Code.LEADER_NOT_AVAILABLE), partitions=())
    for topic, twin in elsewhere:
        if topic in found:
            found[topic] = _with_replicas(found[topic], twin)
    named = dict.fromkeys(topic for names in wanted.values() for topic in names or ())
    for topic in named if asked.topics is not None else _remembered(table):
        if topic not in found:
            found[topic] = with_topic_id(_without_leaders(request, topic, table), "", table)
    for topic in named:
        if found[topic].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            counting.unknown(request, topic)
    part = get_element_type(get_response_type(METADATA, request.version), "topics")
    no_such = to_error_code(Code.UNKNOWN_TOPIC_ID)
    nameless = [build_message(part, topic_id=one, name=None, error_code=no_such) for one in unknown]
    return _told_metadata(request, [*found.values(), *nameless], addressing, table)


def _told_by_each(
    request: Request,
    asked: Any,
    wanted: Mapping[str, list[str] | None],
    addressing: BrokerAddressing,
    table: RoutingTable,
    copies: Callable[[str, RoutingTable], Sequence[str]],
) -> Generator[
    Sequence[BrokerRequest], Sequence[BrokerResponse], tuple[dict[str, Any], list[tuple[str, Any]], set[str]]
]:
    """Returns topics from their own clusters, copies elsewhere, and topics on several clusters."""
    answering = [name for name in wanted if table.clusters[name].answers]
    asks = [_ask_metadata(request, asked, name, wanted[name]) for name in answering]
    said = (yield asks) if asks else []
    found: dict[str, Any] = {}
    elsewhere: list[tuple[str, Any]] = []
    several: set[str] = set()
    for name, heard in zip(answering, said, strict=True):
        for topic in _topics_of(heard, request.version):
            if asked.topics is None and is_internal_topic(str(topic.name)):
                continue  # readers of all topics want those of applications
            topic = with_topic_id(topic, name, table)
            renamed = _renamed(topic, name, addressing, message_codec.get_epoch_base(str(topic.name), table))
            _take(found, several, name, renamed, table)
            if name in copies(str(topic.name), table):
                elsewhere.append((str(topic.name), renamed))
    return found, elsewhere, several


def _remembered(table: RoutingTable) -> Iterator[str]:
    """Yields topics that clients know, also if a cluster is silent or there is no leader."""
    for topic in (*table.routes, *table.leaderless):
        if not is_internal_topic(topic) and any(topic in cluster.partitions for cluster in table.clusters.values()):
            yield topic


def _without_leaders(request: Request, topic: str, table: RoutingTable) -> Any:
    """Build the topic with its known partitions, so that pattern subscribers do not take it for deleted."""
    kind = get_element_type(get_response_type(METADATA, request.version), "topics")
    part = get_element_type(get_response_type(METADATA, request.version), "topics", "partitions")
    home = table.clusters.get(table.routes.get(topic, ""))
    counts = [cluster.partitions.get(topic, 0) for cluster in ([home] if home else table.clusters.values())]
    code = to_error_code(Code.LEADER_NOT_AVAILABLE)
    partitions = tuple(
        build_message(
            part, partition_index=number, error_code=code, leader_id=NO_BROKER, leader_epoch=message_codec.NO_EPOCH
        )
        for number in range(max(counts))
    )
    return build_message(
        kind, name=topic, partitions=partitions, error_code=to_error_code(Code.NONE) if partitions else code
    )


def _ask_metadata(request: Request, asked: Any, cluster: str, names: Sequence[str] | None) -> BrokerRequest:
    topic_kind = get_element_type(get_request_type(METADATA, request.version), "topics")
    topics = None if names is None else tuple(build_message(topic_kind, name=one) for one in names)
    # No topic is created: its cluster would be unknown.
    body = encode_message(replace(asked, topics=topics, allow_auto_topic_creation=False))
    return BrokerRequest(BrokerId(cluster, ANY_BROKER), METADATA, request.version, body)


def _with_replicas(topic: Any, twin: Any) -> Any:
    """Returns the topic with its twin's leaders among the replicas."""
    leads = {one.partition_index: one.leader_id for one in twin.partitions if one.leader_id >= 0}
    partitions = tuple(
        replace(one, replica_nodes=(*one.replica_nodes, leads[one.partition_index]))
        if one.partition_index in leads
        else one
        for one in topic.partitions
    )
    return replace(topic, partitions=partitions)


def _topics_of(said: BrokerResponse, version: int) -> Sequence[Any]:
    return () if said is None else decode_response(METADATA, version, said).topics


def _take(found: dict[str, Any], several: set[str], cluster: str, topic: Any, table: RoutingTable) -> None:
    """Keep the topic from its own cluster; without a known home, from any, or add it to `several`."""
    name = str(topic.name)
    if table.is_elsewhere(name, cluster):
        return
    before = found.get(name)
    if before is not None and not (before.error_code or topic.error_code):
        several.add(name)
    if before is None or (before.error_code and not topic.error_code):
        found[name] = topic


def _renamed(topic: Any, cluster: str, addressing: BrokerAddressing, base: int | None) -> Any:
    def numbers(nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(addressing.number(cluster, node) for node in nodes)

    partitions = tuple(
        replace(
            one,
            leader_id=addressing.number(cluster, one.leader_id),
            replica_nodes=numbers(one.replica_nodes),
            isr_nodes=numbers(one.isr_nodes),
            **_since(one, "offline_replicas", numbers(getattr(one, "offline_replicas", ()))),
            **_since(
                one,
                "leader_epoch",
                message_codec.to_client_epoch(getattr(one, "leader_epoch", message_codec.NO_EPOCH), base),
            ),
        )
        for one in topic.partitions
    )
    return replace(topic, partitions=partitions)


def _since(one: Any, name: str, value: Any) -> dict[str, Any]:
    """Returns the field in versions that have it."""
    return {name: value} if hasattr(one, name) else {}


def _told_metadata(request: Request, topics: Any, addressing: BrokerAddressing, table: RoutingTable) -> Parts:
    kind = get_response_type(METADATA, request.version)
    broker = get_element_type(kind, "brokers")
    told = build_message(
        kind,
        brokers=tuple(build_message(broker, node_id=number, **rest) for number, rest in _brokers(addressing, table)),
        cluster_id=addressing.cluster_id,
        controller_id=_controller(addressing, table),
        topics=tuple(topics),
    )
    return encode_message(told)


def _brokers(addressing: BrokerAddressing, table: RoutingTable) -> Iterator[tuple[int, dict[str, Any]]]:
    for cluster in table.clusters.values():
        for node, broker in sorted(cluster.brokers.items()):
            host, port = addressing.host_of(cluster.name, node), addressing.port_of(cluster.name, node)
            yield addressing.number(cluster.name, node), {"host": host, "port": port, "rack": broker.rack}


def _controller(addressing: BrokerAddressing, table: RoutingTable) -> int:
    for cluster in table.clusters.values():
        if cluster.answers and cluster.controller in cluster.brokers:
            return addressing.number(cluster.name, cluster.controller)
    return NO_BROKER


def route_describe_cluster(request: Request, addressing: BrokerAddressing, table: RoutingTable) -> RequestDecision:
    """Describe all clusters as one."""
    asked = decode_request(request)
    kind = get_response_type(request.key, request.version)
    if getattr(asked, "endpoint_type", _BROKERS) != _BROKERS:
        says = "the controllers behind the proxy are not for clients"
        return RespondNow(
            build_error_response(
                request, Code.UNSUPPORTED_ENDPOINT_TYPE, error_message=says, cluster_id=addressing.cluster_id
            )
        )
    broker = get_element_type(kind, "brokers")
    told = build_message(
        kind,
        brokers=tuple(build_message(broker, broker_id=number, **rest) for number, rest in _brokers(addressing, table)),
        cluster_id=addressing.cluster_id,
        controller_id=_controller(addressing, table),
    )
    return RespondNow(encode_message(told))


def route_find_coordinator(request: Request, addressing: BrokerAddressing, table: RoutingTable) -> RequestDecision:
    """Ask the groups' home, for a group or a transactional id."""
    asked = decode_request(request)
    if getattr(asked, "key_type", _GROUP) not in (_GROUP, _TRANSACTION):
        return RespondNow(_no_coordinator(request, asked, Code.UNSUPPORTED_VERSION, NO_SUCH_KEY))
    return FanOut(_find_coordinator(request, asked, addressing, table))


def _find_coordinator(request: Request, asked: Any, addressing: BrokerAddressing, table: RoutingTable) -> FanOutSteps:
    home = table.group_home()
    body = request.view[request.position :]
    (said,) = yield [BrokerRequest(BrokerId(home, ANY_BROKER), request.key, request.version, [body])]
    if said is None:
        return _no_coordinator(request, asked, Code.COORDINATOR_NOT_AVAILABLE, f"cluster {home} does not answer")
    answer = decode_response(request.key, request.version, said)
    if request.version < _BATCHED:
        return encode_message(_led(answer, home, addressing))
    return encode_message(
        replace(answer, coordinators=tuple(_led(one, home, addressing) for one in answer.coordinators))
    )


def _led(one: Any, cluster: str, addressing: BrokerAddressing) -> Any:
    if one.error_code or one.node_id < 0:
        return one
    host, port = addressing.host_of(cluster, one.node_id), addressing.port_of(cluster, one.node_id)
    return replace(one, node_id=addressing.number(cluster, one.node_id), host=host, port=port)


def _no_coordinator(request: Request, asked: Any, code: Code, says: str) -> Parts:
    kind = get_response_type(request.key, request.version)
    values = {"error_code": to_error_code(code), "error_message": says}
    if request.version < _BATCHED:
        return encode_message(build_message(kind, **values))
    part = get_element_type(kind, "coordinators")
    return encode_message(
        build_message(
            kind, coordinators=tuple(build_message(part, key=key, **values) for key in asked.coordinator_keys)
        )
    )


def route_init_producer_id(request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Returns an id from one cluster, marked as such.

    The producer writes to other clusters with it, so no producer of those may have the same. Brokers do not check the
    origin.
    """
    asked = decode_request(request)
    if asked.transactional_id is not None:
        return transaction_requests.init_transactional_producer(request, asked, place, table)
    places = [BrokerId(name, ANY_BROKER) for name in table.answering() if place is None or name != place.cluster]
    if place is not None and table.clusters[place.cluster].answers:
        places.insert(0, place)
    return FanOut(_init_producer_id(request, asked, places, table))


def _init_producer_id(request: Request, asked: Any, places: Sequence[BrokerId], table: RoutingTable) -> FanOutSteps:
    """Ask brokers in turn: a client may have access to one cluster alone."""
    refused = build_error_response(request, Code.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1)
    for place in places:
        mark, ours = get_cluster_mark(table.clusters[place.cluster].cluster_id), asked
        if extract_cluster_mark(getattr(asked, "producer_id", NO_BROKER)) == mark:
            ours = replace(asked, producer_id=remove_cluster_mark(asked.producer_id))
        (said,) = yield [BrokerRequest(place, INIT_PRODUCER_ID, request.version, encode_message(ours))]
        if said is None:
            continue
        answer = decode_response(INIT_PRODUCER_ID, request.version, said)
        if not answer.error_code:
            given = answer.producer_id
            return (
                [said]
                if extract_cluster_mark(given)
                else encode_message(replace(answer, producer_id=add_cluster_mark(given, mark)))
            )
        refused = [said]
    return refused


OFFSET_QUERY_API_KEYS: Final = (LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
_NAMES: Final = ("leader_epoch", "current_leader_epoch")
# What each API calls a topic, and a partition.
_WORDS: Final = dict.fromkeys((LIST_OFFSETS, DELETE_RECORDS, DESCRIBE_PRODUCERS), ("name", "partition_index"))
_ELSE: Final = ("topic", "partition")


def query_offsets(
    request: Request,
    body: Any,
    name: Callable[[Any], str],
    place: BrokerId,
    table: RoutingTable,
    lost: Callable[[Any], Any],
) -> FanOutSteps:
    """Query with the epochs of the topics' home.

    `name`: a topic's name in request and response. `lost`: the answer for a topic whose broker is silent.
    """
    ended: dict[str, tuple[Any, ...]] = {}
    topics: list[Any] = []
    for topic in body.topics:
        base = _base(name(topic), table)
        before = tuple(one for one in topic.partitions if _is_earlier(request, one, base))
        if before:
            ended[name(topic)] = tuple(_end(request, name(topic), one, table) for one in before)
        left = tuple(_meant(one, base) for one in topic.partitions if one not in before)
        if left:
            topics.append(replace(topic, partitions=left))
    kind = get_response_type(request.key, request.version)
    answer = build_message(kind)
    if topics:
        (said,) = yield [
            BrokerRequest(place, request.key, request.version, encode_message(replace(body, topics=tuple(topics))))
        ]
        answer = build_message(kind, topics=tuple(map(lost, topics)))
        if said is not None:
            answer = decode_response(request.key, request.version, said)
    found = [
        replace(
            one, partitions=(*(_told(part, name(one), table) for part in one.partitions), *ended.pop(name(one), ()))
        )
        for one in answer.topics
    ]
    part = get_element_type(kind, "topics")
    found += [build_message(part, topic=topic, partitions=parts) for topic, parts in ended.items()]
    return encode_message(replace(answer, topics=tuple(found)))


def _base(topic: str, table: RoutingTable) -> int | None:
    """Returns the epoch base; without a term, clients only know the broker's own epochs."""
    return message_codec.get_epoch_base(topic, table) if topic in table.leads else 0


def _is_earlier(request: Request, part: Any, base: int | None) -> bool:
    return request.key == OFFSET_FOR_LEADER_EPOCH and message_codec.is_earlier_term_epoch(part.leader_epoch, base)


def _end(request: Request, topic: str, part: Any, table: RoutingTable) -> Any:
    kind = get_element_type(get_response_type(request.key, request.version), "topics", "partitions")
    end = message_codec.get_handoff_offset(topic, part.partition, table)
    return build_message(kind, partition=part.partition, leader_epoch=part.leader_epoch, end_offset=end)


def _meant(part: Any, base: int | None) -> Any:
    values = {one: message_codec.to_home_epoch(getattr(part, one), base) for one in _NAMES if hasattr(part, one)}
    return replace(part, **values)


def _told(part: Any, topic: str, table: RoutingTable) -> Any:
    if not hasattr(part, "leader_epoch"):
        return part
    return replace(part, leader_epoch=message_codec.to_client_epoch(part.leader_epoch, _base(topic, table)))


def route_by_partitions(request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Forward if all topics are at that cluster; refuse those elsewhere."""
    asked = decode_request(request)
    topic, _ = _WORDS.get(request.key, _ELSE)
    here = (
        ()
        if place is None
        else tuple(one for one in asked.topics if not table.is_elsewhere(getattr(one, topic), place.cluster))
    )
    by_epochs = request.key in OFFSET_QUERY_API_KEYS and any(getattr(one, topic) in table.leads for one in here)
    if place is not None and len(here) == len(asked.topics) and not by_epochs:
        return ForwardRequest(place, _wait_s(asked))
    moved = tuple(_moved(request, one) for one in asked.topics if one not in here)
    if place is None or not here:
        return refuse_all_partitions(request, asked, Code.NOT_LEADER_OR_FOLLOWER)
    of_here = replace(asked, topics=here)
    ask = _part(request, of_here, place)
    if by_epochs:
        ask = query_offsets(request, of_here, attrgetter(topic), place, table, partial(_moved, request))
    return FanOut(_with(request, ask, moved), _wait_s(asked))


def refuse_all_partitions(request: Request, asked: Any, code: Code) -> RespondNow:
    topics = tuple(_moved(request, one, code) for one in asked.topics)
    return RespondNow(encode_message(build_message(get_response_type(request.key, request.version), topics=topics)))


def _wait_s(asked: Any) -> float:
    """Returns the timeout: DeleteRecords waits for replicas as long as the client allows."""
    timeout = getattr(asked, "timeout", timedelta(0))
    return RESPONSE_TIMEOUT_S + max(0.0, min(timeout.total_seconds(), RESPONSE_TIMEOUT_S))


def _part(request: Request, asked: Any, place: BrokerId) -> FanOutSteps:
    (said,) = yield [BrokerRequest(place, request.key, request.version, encode_message(asked))]
    if said is None:
        return refuse_all_partitions(request, asked, Code.NOT_LEADER_OR_FOLLOWER).body
    return [said]


def _with(request: Request, ask: FanOutSteps, moved: tuple[Any, ...]) -> FanOutSteps:
    """Add topics that have moved to the response."""
    body = yield from ask
    if not moved:
        return body
    answer = decode_response(request.key, request.version, memoryview(b"".join(body)))
    return encode_message(replace(answer, topics=(*answer.topics, *moved)))


def _moved(request: Request, topic: Any, code: Code = Code.NOT_LEADER_OR_FOLLOWER) -> Any:
    name, number = _WORDS.get(request.key, _ELSE)
    kind = get_element_type(get_response_type(request.key, request.version), "topics")
    part = get_element_type(kind, "partitions")
    values = {"error_code": to_error_code(code), "low_watermark": -1}
    numbers = (
        topic.partition_indexes if request.key == DESCRIBE_PRODUCERS else map(attrgetter(number), topic.partitions)
    )
    partitions = tuple(build_message(part, **values, **{number: one}) for one in numbers)
    return build_message(kind, partitions=partitions, **{name: getattr(topic, name)})
