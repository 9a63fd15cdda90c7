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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from operator import attrgetter
from typing import Any, Final, TypeAlias
from uuid import UUID

from twinshore.config.errors import WireError
from twinshore.config.model import is_internal_topic
from twinshore.kafka.protocol.apis import DESCRIBE_PRODUCERS, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.api_versions import DELETE_RECORDS
from twinshore.proxy.core.message_codec import (
    ask_broker,
    ask_brokers,
    build_error_response,
    build_message,
    build_response,
    convert_message,
    decode_request,
    encode_message,
    get_element_type,
    get_epoch_base,
    get_handoff_offset,
    get_request_type,
    get_response_type,
    is_earlier_term_epoch,
    to_client_epoch,
    to_home_epoch,
)
from twinshore.proxy.core.model import (
    ANY_BROKER,
    NO_BROKER,
    RESPONSE_TIMEOUT_S,
    BrokerAddressing,
    BrokerId,
    FanOut,
    FanOutSteps,
    ForwardRequest,
    Parts,
    RequestDecision,
    RespondNow,
    RoutingTable,
    SubRequests,
    add_cluster_mark,
    extract_cluster_mark,
    get_cluster_mark,
    remove_cluster_mark,
)
from twinshore.proxy.core.traffic import RequestCounter
from twinshore.proxy.core.transaction_requests import init_transactional_producer

_GROUP: Final = 0
_TRANSACTION: Final = 1
_BROKERS: Final = 1
_BATCHED: Final = 4
# The first version that can forbid topic creation. Older requests are sent as this one, and answered in their own.
NO_AUTO_CREATE_VERSION: Final = 4


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
    for topic in asked:  # Java sends an empty name beside an id
        topic_id = getattr(topic, "topic_id", None)
        name = topic.name if topic_id is None else table.topics_by_id.get(topic_id.bytes)
        if name is not None:
            names.append(str(name))
        elif topic_id is None:
            raise WireError("Metadata: a topic without a name and an id")
        else:
            unknown.append(topic_id)
    return names, unknown


# The topics to ask each cluster about; None for all.
_Wanted: TypeAlias = Mapping[str, list[str] | None]


@dataclass(frozen=True, slots=True)
class MetadataRequests:
    """Metadata requests of one client.

    `news` is called for topics that were not known. `copies`: clusters other than home where the client may read a
    topic. Leaders there are listed as replicas, since Java clients go to no others.
    """

    addressing: BrokerAddressing
    news: Callable[[], None]
    counting: RequestCounter
    copies: Callable[[str, RoutingTable], Sequence[str]]

    def route(self, request: Request, table: RoutingTable) -> FanOut:
        """Ask each topic's own cluster."""
        asked = decode_request(request)
        if request.version < NO_AUTO_CREATE_VERSION:
            asked = convert_message(get_request_type(METADATA, NO_AUTO_CREATE_VERSION), asked)
            if request.version == 0:  # which asks for all by naming none
                asked = replace(asked, topics=asked.topics or None)
        self.counting.looked(request)
        names, unknown = resolve_topic_names(asked.topics or (), table)
        wanted: _Wanted = dict.fromkeys(table.clusters)
        if asked.topics is not None:
            wanted = self._by_cluster(names, table)
        if unknown:
            self.news()
        return FanOut(self._ask(request, asked, wanted, unknown, table))

    def _by_cluster(self, topics: Sequence[str], table: RoutingTable) -> _Wanted:
        """Returns what to ask each cluster; topics without a known home are asked for everywhere."""
        wanted: dict[str, list[str]] = {}
        for topic in dict.fromkeys(topics):
            home = table.route(topic)
            for cluster in [home, *self.copies(topic, table)] if home else table.clusters:
                wanted.setdefault(cluster, []).append(topic)
        return wanted

    def _ask(
        self, request: Request, asked: Any, wanted: _Wanted, unknown: Sequence[UUID], table: RoutingTable
    ) -> FanOutSteps:
        kind = get_response_type(METADATA, asked.__version__)
        found, twins, several = yield from self._ask_clusters(asked, wanted, table)
        if any(table.route(name) is None and not topic.error_code for name, topic in found.items()):
            self.news()
        for name in several:  # one is a twin; which one will be known soon
            found[name] = replace(found[name], error_code=Code.leader_not_available, partitions=())
        for name, twin in twins:
            if name in found:
                found[name] = _with_replicas(found[name], twin)
        named = dict.fromkeys(name for names in wanted.values() for name in names or ())
        for name in named if asked.topics is not None else _remembered(table):
            if name not in found:
                found[name] = _without_leaders(get_element_type(kind, "topics"), name, table)
        for name in named:
            if found[name].error_code == Code.unknown_topic_or_partition:
                self.counting.unknown(request, name)
        nameless = [{"topic_id": one, "name": None, "error_code": Code.unknown_topic_id} for one in unknown]
        answer = build_message(kind, topics=[*found.values(), *nameless], **_brokers(self.addressing, table))
        if request.version < NO_AUTO_CREATE_VERSION:
            answer = convert_message(get_response_type(METADATA, request.version), answer)
        return encode_message(answer)

    def _ask_clusters(
        self, asked: Any, wanted: _Wanted, table: RoutingTable
    ) -> SubRequests[tuple[dict[str, Any], list[tuple[str, Any]], set[str]]]:
        """Returns topics from their own clusters, copies elsewhere, and topics on several clusters."""
        answering = {
            BrokerId(name, ANY_BROKER): names for name, names in wanted.items() if table.clusters[name].answers
        }
        answers = yield from ask_brokers({broker: _ask_about(asked, names) for broker, names in answering.items()})
        found: dict[str, Any] = {}
        twins: list[tuple[str, Any]] = []
        several: set[str] = set()
        for (cluster, _), answer in answers.items():
            for topic in () if answer is None else answer.topics:
                name = str(topic.name)
                if asked.topics is None and is_internal_topic(name):
                    continue  # readers of all topics want those of applications
                shown = _renumber(with_topic_id(topic, cluster, table), cluster, self.addressing, table)
                _take(found, several, cluster, shown, table)
                if cluster in self.copies(name, table):
                    twins.append((name, shown))
        return found, twins, several


def _ask_about(asked: Any, names: Sequence[str] | None) -> Any:
    kind = get_element_type(get_request_type(METADATA, asked.__version__), "topics")
    topics = None if names is None else tuple(build_message(kind, name=name) for name in names)
    # No topic is created: its cluster would be unknown.
    return replace(asked, topics=topics, allow_auto_topic_creation=False)


def _remembered(table: RoutingTable) -> Iterator[str]:
    """Yields topics that clients know, also if a cluster is silent or there is no leader."""
    for topic in (*table.routes, *table.leaderless):
        if not is_internal_topic(topic) and any(topic in cluster.partitions for cluster in table.clusters.values()):
            yield topic


def _without_leaders(kind: Any, topic: str, table: RoutingTable) -> Any:
    """Build the topic with its known partitions, so that pattern subscribers do not take it for deleted."""
    home = table.clusters.get(table.routes.get(topic, ""))
    count = max(cluster.partitions.get(topic, 0) for cluster in ([home] if home else table.clusters.values()))
    partition = {"error_code": Code.leader_not_available, "leader_id": NO_BROKER}
    return build_message(
        kind,
        name=topic,
        topic_id=get_topic_id(topic, table),
        partitions=[{"partition_index": number, **partition} for number in range(count)],
        error_code=Code.none if count else Code.leader_not_available,
    )


def _with_replicas(topic: Any, twin: Any) -> Any:
    """Returns the topic with its twin's leaders among the replicas."""
    leaders = {one.partition_index: one.leader_id for one in twin.partitions if one.leader_id >= 0}
    partitions = []
    for one in topic.partitions:
        if (leader := leaders.get(one.partition_index)) is not None:
            one = replace(one, replica_nodes=(*one.replica_nodes, leader))
        partitions.append(one)
    return replace(topic, partitions=tuple(partitions))


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


def _renumber(topic: Any, cluster: str, addressing: BrokerAddressing, table: RoutingTable) -> Any:
    """Convert broker numbers and leader epochs for clients, in versions that have them."""
    base, partitions = get_epoch_base(str(topic.name), table), []
    for one in topic.partitions:
        values: dict[str, Any] = {"leader_id": addressing.number(cluster, one.leader_id)}
        for name in ("replica_nodes", "isr_nodes", "offline_replicas"):
            if hasattr(one, name):
                values[name] = tuple(addressing.number(cluster, node) for node in getattr(one, name))
        if hasattr(one, "leader_epoch"):
            values["leader_epoch"] = to_client_epoch(one.leader_epoch, base)
        partitions.append(replace(one, **values))
    return replace(topic, partitions=tuple(partitions))


def _brokers(addressing: BrokerAddressing, table: RoutingTable) -> dict[str, Any]:
    """Returns the values that describe all clusters as one. Metadata and DescribeCluster name a broker's id apart."""
    brokers, controller = [], NO_BROKER
    for name, cluster in table.clusters.items():
        if controller == NO_BROKER and cluster.answers and cluster.controller in cluster.brokers:
            controller = addressing.number(name, cluster.controller)
        for node, broker in sorted(cluster.brokers.items()):
            number, host = addressing.number(name, node), addressing.host_of(name, node)
            address = {"host": host, "port": addressing.port_of(name, node), "rack": broker.rack}
            brokers.append({"node_id": number, "broker_id": number, **address})
    return {"brokers": brokers, "cluster_id": addressing.cluster_id, "controller_id": controller}


def route_describe_cluster(request: Request, addressing: BrokerAddressing, table: RoutingTable) -> RequestDecision:
    """Describe all clusters as one."""
    if getattr(decode_request(request), "endpoint_type", _BROKERS) == _BROKERS:
        return RespondNow(build_response(request, **_brokers(addressing, table)))
    why, cluster_id = "the controllers behind the proxy are not for clients", addressing.cluster_id
    error = build_error_response(request, Code.unsupported_endpoint_type, error_message=why, cluster_id=cluster_id)
    return RespondNow(error)


def route_find_coordinator(request: Request, addressing: BrokerAddressing, table: RoutingTable) -> RequestDecision:
    """Ask the groups' home, for a group or a transactional id."""
    asked = decode_request(request)
    if getattr(asked, "key_type", _GROUP) not in (_GROUP, _TRANSACTION):
        why = "only consumer groups and transactions have coordinators at this proxy"
        return RespondNow(_no_coordinator(request, asked, Code.unsupported_version, why))
    return FanOut(_find_coordinator(request, asked, addressing, table))


def _find_coordinator(request: Request, asked: Any, addressing: BrokerAddressing, table: RoutingTable) -> FanOutSteps:
    home = table.group_home()
    answer = yield from ask_broker(BrokerId(home, ANY_BROKER), asked)
    if answer is None:
        return _no_coordinator(request, asked, Code.coordinator_not_available, f"cluster {home} does not answer")
    if request.version < _BATCHED:
        return encode_message(_led(answer, home, addressing))
    coordinators = tuple(_led(one, home, addressing) for one in answer.coordinators)
    return encode_message(replace(answer, coordinators=coordinators))


def _led(one: Any, cluster: str, addressing: BrokerAddressing) -> Any:
    if one.error_code or one.node_id < 0:
        return one
    host, port = addressing.host_of(cluster, one.node_id), addressing.port_of(cluster, one.node_id)
    return replace(one, node_id=addressing.number(cluster, one.node_id), host=host, port=port)


def _no_coordinator(request: Request, asked: Any, code: Code, why: str) -> Parts:
    coordinators = [
        {"key": key, "error_code": code, "error_message": why} for key in getattr(asked, "coordinator_keys", ())
    ]
    return build_error_response(request, code, error_message=why, coordinators=coordinators)


def route_init_producer_id(request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Returns an id from one cluster, marked as such.

    The producer writes to other clusters with it, so no producer of those may have the same. Brokers do not check the
    origin.
    """
    asked = decode_request(request)
    if asked.transactional_id is not None:
        return init_transactional_producer(request, asked, place, table)
    brokers = [BrokerId(name, ANY_BROKER) for name in table.answering() if place is None or name != place.cluster]
    if place is not None and table.clusters[place.cluster].answers:
        brokers.insert(0, place)
    return FanOut(_init_producer_id(request, asked, brokers, table))


def _init_producer_id(request: Request, asked: Any, brokers: Sequence[BrokerId], table: RoutingTable) -> FanOutSteps:
    """Ask brokers in turn: a client may have access to one cluster alone."""
    refused = build_error_response(request, Code.coordinator_load_in_progress, producer_epoch=-1)
    for broker in brokers:
        mark, question = get_cluster_mark(table.clusters[broker.cluster].cluster_id), asked
        if extract_cluster_mark(getattr(asked, "producer_id", NO_BROKER)) == mark:
            question = replace(asked, producer_id=remove_cluster_mark(asked.producer_id))
        answer = yield from ask_broker(broker, question)
        if answer is None:
            continue
        if not answer.error_code:
            if not extract_cluster_mark(answer.producer_id):
                answer = replace(answer, producer_id=add_cluster_mark(answer.producer_id, mark))
            return encode_message(answer)
        refused = encode_message(answer)
    return refused


OFFSET_QUERY_API_KEYS: Final = (LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
_EPOCHS: Final = ("leader_epoch", "current_leader_epoch")
# What each API calls a topic, and a partition.
_FIELDS: Final = dict.fromkeys((LIST_OFFSETS, DELETE_RECORDS, DESCRIBE_PRODUCERS), ("name", "partition_index"))
_ELSE: Final = ("topic", "partition")


def route_by_partitions(request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Forward if all topics are at that cluster; refuse those elsewhere."""
    asked = decode_request(request)
    name = attrgetter(_FIELDS.get(request.key, _ELSE)[0])
    here: tuple[Any, ...] = ()
    if place is not None:
        here = tuple(topic for topic in asked.topics if not table.is_elsewhere(name(topic), place.cluster))
    by_epochs = request.key in OFFSET_QUERY_API_KEYS and any(name(topic) in table.leads for topic in here)
    if place is not None and len(here) == len(asked.topics) and not by_epochs:
        return ForwardRequest(place, _wait_s(asked))
    if place is None or not here:
        return refuse_all_partitions(request, asked, Code.not_leader_or_follower)
    moved = tuple(_refused(request, topic) for topic in asked.topics if topic not in here)
    question = replace(asked, topics=here)
    steps = _query_epochs(request, question, place, table) if by_epochs else _query(request, question, place)
    return FanOut(_with(steps, moved), _wait_s(asked))


def refuse_all_partitions(request: Request, asked: Any, code: Code) -> RespondNow:
    return RespondNow(build_response(request, topics=[_refused(request, topic, code) for topic in asked.topics]))


def _refused(request: Request, topic: Any, code: Code = Code.not_leader_or_follower) -> Any:
    name, number = _FIELDS.get(request.key, _ELSE)
    kind = get_element_type(get_response_type(request.key, request.version), "topics")
    numbers = getattr(topic, "partition_indexes", None)
    if numbers is None:
        numbers = map(attrgetter(number), topic.partitions)
    partitions = [{number: one, "error_code": code, "low_watermark": -1} for one in numbers]
    return build_message(kind, partitions=partitions, **{name: getattr(topic, name)})


def _wait_s(asked: Any) -> float:
    """Returns the timeout: DeleteRecords waits for replicas as long as the client allows."""
    timeout = getattr(asked, "timeout", timedelta(0))
    return RESPONSE_TIMEOUT_S + max(0.0, min(timeout.total_seconds(), RESPONSE_TIMEOUT_S))


def _with(steps: SubRequests[Any], moved: tuple[Any, ...]) -> FanOutSteps:
    """Add topics that have moved to the response."""
    answer = yield from steps
    return encode_message(replace(answer, topics=(*answer.topics, *moved)))


def _query(request: Request, asked: Any, place: BrokerId) -> SubRequests[Any]:
    """Returns the broker's response; without one, a response that refuses all topics."""
    answer = yield from ask_broker(place, asked)
    if answer is not None:
        return answer
    kind = get_response_type(request.key, request.version)
    return build_message(kind, topics=[_refused(request, topic) for topic in asked.topics])


def _query_epochs(request: Request, asked: Any, place: BrokerId, table: RoutingTable) -> SubRequests[Any]:
    """Query with the epochs of the topics' home. Epochs of earlier terms are answered here."""
    field = _FIELDS.get(request.key, _ELSE)[0]
    kind = get_response_type(request.key, request.version)
    ended: dict[str, tuple[Any, ...]] = {}
    topics: list[Any] = []
    for topic in asked.topics:
        name = getattr(topic, field)
        base = _base(name, table)
        before = [one for one in topic.partitions if _is_earlier(request, one, base)]
        if before:
            ended[name] = tuple(_end(kind, name, one, table) for one in before)
        left = tuple(_to_home(one, base) for one in topic.partitions if one not in before)
        if left:
            topics.append(replace(topic, partitions=left))
    answer = build_message(kind)
    if topics:
        answer = yield from _query(request, replace(asked, topics=tuple(topics)), place)
    found = []
    for topic in answer.topics:
        name = getattr(topic, field)
        parts = (_to_client(part, _base(name, table)) for part in topic.partitions)
        found.append(replace(topic, partitions=(*parts, *ended.pop(name, ()))))
    part = get_element_type(kind, "topics")
    found += [build_message(part, topic=name, partitions=parts) for name, parts in ended.items()]
    return replace(answer, topics=tuple(found))


def _base(topic: str, table: RoutingTable) -> int | None:
    """Returns the epoch base; without a term, clients only know the broker's own epochs."""
    return get_epoch_base(topic, table) if topic in table.leads else 0


def _is_earlier(request: Request, part: Any, base: int | None) -> bool:
    return request.key == OFFSET_FOR_LEADER_EPOCH and is_earlier_term_epoch(part.leader_epoch, base)


def _end(kind: Any, topic: str, part: Any, table: RoutingTable) -> Any:
    end = get_handoff_offset(topic, part.partition, table)
    partition = get_element_type(kind, "topics", "partitions")
    return build_message(partition, partition=part.partition, leader_epoch=part.leader_epoch, end_offset=end)


def _to_home(part: Any, base: int | None) -> Any:
    return replace(part, **{one: to_home_epoch(getattr(part, one), base) for one in _EPOCHS if hasattr(part, one)})


def _to_client(part: Any, base: int | None) -> Any:
    if not hasattr(part, "leader_epoch"):
        return part
    return replace(part, leader_epoch=to_client_epoch(part.leader_epoch, base))
