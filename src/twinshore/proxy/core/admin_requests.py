"""Admin requests: which cluster answers each, which all answer, and which are refused.

A rule takes a request and the routing table, and returns a decision. Responses of several clusters are merged; one that
is away costs only its part. A refusal is in the request's own response, so that client libraries show it.

Brokers have the numbers that clients know. Their listeners and the quorum are hidden.

The groups' home goes first, since only the home knows whether a group has members; nothing is deleted elsewhere before.

Requests are refused that several clusters would have to do alike, or only one can know. Produce is refused in
`record_requests`, by the same rule (`filters.is_protected_topic`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from twinshore.config.errors import WireError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.kafka.protocol.apis import (
    DESCRIBE_CONFIGS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    api_name,
)
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.primitives import I32, PAST_END_ERRORS
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.api_versions import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_SCRAM_USERS,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_PARTITION_REASSIGNMENTS,
    LIST_TRANSACTIONS,
    OFFSET_DELETE,
)
from twinshore.proxy.core.group_requests import OffsetRequests, check_group_idle, group_topics_by_cluster
from twinshore.proxy.core.message_codec import (
    build_error_response,
    build_message,
    build_metadata_request,
    build_topic_errors,
    decode_request,
    decode_response,
    encode_message,
    get_element_type,
    get_request_type,
    get_response_type,
    to_error_code,
)
from twinshore.proxy.core.metadata_requests import refuse_all_partitions, route_by_partitions
from twinshore.proxy.core.model import (
    ANY_BROKER,
    FAN_OUT_TIMEOUT_S,
    BrokerAddressing,
    BrokerId,
    BrokerRequest,
    BrokerResponse,
    DisconnectClient,
    FanOut,
    FanOutSteps,
    ForwardRequest,
    ParkRequest,
    Parts,
    ProxiedCluster,
    RequestDecision,
    RespondNow,
    RoutingTable,
)
from twinshore.replication.core.filters import is_protected_topic
from twinshore.routing.core.leader_cluster import NoLeaderReason, describe_decision

ResultT = TypeVar("ResultT")
SubRequests: TypeAlias = Generator[Sequence[BrokerRequest], Sequence[BrokerResponse], ResultT]

# Changes take longer than queries: so long for finding where, and again for the change. Clients wait for half a
# minute by default.
CHANGE_TIMEOUT_S: Final = 12.0
NO_SUCH_TOPIC: Final = "This server does not host this topic-partition."
_THERE: Final = (Code.NONE, Code.LEADER_NOT_AVAILABLE)
_NOT_THERE: Final = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION)
TOPIC_RESOURCE_TYPE: Final = 2
BROKER_RESOURCE_TYPE: Final = 4
BROKER_LOGGER_RESOURCE_TYPE: Final = 8
GROUP_RESOURCE_TYPE: Final = 32
# Addresses, and ids of brokers and controllers within them.
HIDDEN_BROKER_CONFIGS: Final = frozenset(
    {
        "advertised.listeners",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listeners",
        "zookeeper.connect",
    }
)
BROKER_ID_CONFIGS: Final = frozenset({"broker.id", "node.id"})
# Partitions and brokers, as `0:1,1:2`.
THROTTLED_REPLICAS_CONFIGS: Final = frozenset(
    {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)
_NO_SUCH: Final = Code.UNKNOWN_TOPIC_OR_PARTITION
# After this error every client repeats the request at the same broker.
_AGAIN: Final = Code.COORDINATOR_LOAD_IN_PROGRESS
# For a silent coordinator: the next try looks for another.
_GONE: Final = Code.NOT_COORDINATOR
ACLS_REFUSED_REASON: Final = (
    "ACLs are changed at a cluster's own address: this proxy has several, and on a mirror's target"
)
ACLS_REFUSED_MESSAGE: Final = f"{ACLS_REFUSED_REASON} a right to write would spoil twins"
ELECTION_REFUSED_MESSAGE: Final = "leaders are elected at the cluster's own address, not by this proxy"
REASSIGNMENT_REFUSED_MESSAGE: Final = "replicas are moved at the cluster's own address, not by this proxy"
QUOTAS_REFUSED_MESSAGE: Final = "quotas are set at each cluster's own address: this proxy has several"
SCRAM_REFUSED_MESSAGE: Final = "SCRAM users are kept at each cluster's own address, not by this proxy"
_REFUSED: Final = to_error_code(Code.POLICY_VIOLATION)
# From this version the replica id is the first field; a consumer's is -1, a debugger's -2.
_OF_REPLICAS: Final = {FETCH: 0, LIST_OFFSETS: 0, OFFSET_FOR_LEADER_EPOCH: 3}
_CONSUMERS: Final = (-1, -2)


class RequestArrays(NamedTuple):
    """The array of parts in a request, that of results in the response, and the fields that name the part there."""

    asked: str
    told: str
    names: Callable[[Any], dict[str, Any]]


class SplitRequest:
    """A request over several clusters, with one merged response.

    Each part goes to a broker or is refused here. `renamed`: converts a cluster's result for clients.
    """

    def __init__(
        self,
        request: Request,
        asked: Any,
        words: RequestArrays,
        table: RoutingTable,
        renamed: Callable[[str, Any], Any] = lambda _, one: one,
    ) -> None:
        self._request, self._asked, self._words, self._table, self._renamed = request, asked, words, table, renamed
        self._given: dict[BrokerId, list[Any]] = {}
        self._told: list[Any] = []

    def give(self, part: Any, place: BrokerId) -> None:
        """Send the part to this broker, or refuse it if the cluster is away."""
        if self._table.clusters[place.cluster].answers:
            self._given.setdefault(place, []).append(part)
        else:
            refused = self._refused(part, Code.REQUEST_TIMED_OUT, f"cluster {place.cluster} does not answer")
            self._told.append(self._renamed(place.cluster, refused))

    def refuse(self, part: Any, code: Code, says: str) -> None:
        self._told.append(self._refused(part, code, says))

    def _refused(self, part: Any, code: Code, says: str) -> Any:
        kind = get_element_type(get_response_type(self._request.key, self._request.version), self._words.told)
        return build_message(kind, error_code=to_error_code(code), error_message=says, **self._words.names(part))

    def errand(self) -> FanOutSteps:
        """Ask the brokers, and merge the results."""
        key, version, words = self._request.key, self._request.version, self._words
        asks = [
            BrokerRequest(place, key, version, encode_message(replace(self._asked, **{words.asked: tuple(parts)})))
            for place, parts in self._given.items()
        ]
        said = (yield asks) if asks else []
        told, throttle = list(self._told), timedelta(0)
        for (place, parts), heard in zip(self._given.items(), said, strict=True):
            if heard is None:
                says = f"cluster {place.cluster} did not answer in time, and it is not known what became of it"
                found = [self._refused(one, Code.REQUEST_TIMED_OUT, says) for one in parts]
            else:
                answer = decode_response(key, version, heard)
                found = getattr(answer, words.told)
                if any(one.error_code == Code.THROTTLING_QUOTA_EXCEEDED for one in found):
                    throttle = max(throttle, answer.throttle_time)
            told += [self._renamed(place.cluster, self._settled(place.cluster, one)) for one in found]
        values: dict[str, Any] = {words.told: tuple(told), "throttle_time": throttle}
        return encode_message(build_message(get_response_type(key, version), **values))

    def _settled(self, cluster: str, one: Any) -> Any:
        """Replace NOT_CONTROLLER, after which the client would repeat finished parts too."""
        if one.error_code != Code.NOT_CONTROLLER or len(self._given) + len(self._told) == 1:
            return one
        says = f"cluster {cluster} has another controller by now: ask again"
        return replace(
            one,
            error_code=to_error_code(Code.REQUEST_TIMED_OUT),
            **({"error_message": says} if hasattr(one, "error_message") else {}),
        )


def get_first_cluster(table: RoutingTable) -> str:
    """Returns the first cluster in the settings, on whichever groups are."""
    return next(iter(table.clusters))


def find_controller(cluster: str, table: RoutingTable) -> BrokerId:
    """Returns the cluster's controller, or any broker: KRaft brokers ask theirs."""
    proxied_cluster = table.clusters[cluster]
    return BrokerId(
        cluster, proxied_cluster.controller if proxied_cluster.controller in proxied_cluster.brokers else ANY_BROKER
    )


def find_broker(number: int, addressing: BrokerAddressing, table: RoutingTable) -> BrokerId | None:
    """Returns the broker with this number, if any."""
    index = number // addressing.nodes_per_cluster
    if number < 0 or index >= len(addressing.clusters):
        return None
    cluster = addressing.clusters[index]
    for node in table.clusters[cluster].brokers:
        if addressing.number(cluster, node) == number:
            return BrokerId(cluster, node)
    return None


def find_holders(topics: Iterable[str], table: RoutingTable) -> SubRequests[dict[str, list[str]]]:
    """Ask which clusters have each topic; for one that is away the last look counts."""
    names = list(dict.fromkeys(topics))
    version = table.offers[METADATA][1]
    body = build_metadata_request(names, version)
    answering = table.answering() if names else []
    asks = [BrokerRequest(BrokerId(name, ANY_BROKER), METADATA, version, body) for name in answering]
    said = (yield asks) if asks else []
    told = dict(zip(answering, said, strict=True))
    found: dict[str, list[str]] = {}
    for name, cluster in table.clusters.items():
        for topic in _held(names, cluster, told.get(name), version):
            found.setdefault(topic, []).append(name)
    return found


def _held(names: Sequence[str], cluster: ProxiedCluster, said: BrokerResponse, version: int) -> list[str]:
    topics = () if said is None else decode_response(METADATA, version, said).topics
    codes = {str(one.name): int(one.error_code) for one in topics}
    held = []
    for name in names:
        code = codes.get(name)
        if code in _THERE or (code not in _NOT_THERE and name in cluster.topics):
            held.append(name)
    return held


def find_topic_homes(topics: Iterable[str], table: RoutingTable) -> SubRequests[dict[str, str]]:
    """Returns the topics' homes; only for unknown topics the clusters are asked.

    Topics at home on other clusters than the proxy's are left out.
    """
    names = set(topics) - table.leaderless.keys()
    known = {name: home for name in names if (home := table.route(name)) is not None}
    held = yield from find_holders(sorted(names - known.keys()), table)
    return known | {name: clusters[0] for name, clusters in held.items()}


def describe_moving_topic(topic: str) -> str:
    return f"topic {topic} may not be changed now, as a switch moves it or its home is not known: ask again"


def describe_unreachable_holders(topic: str, table: RoutingTable) -> str:
    """Returns why the topic cannot be created or deleted while another cluster may have it."""
    silent = " and ".join(table.unseen)
    return f"topic {topic}: cluster {silent} has not answered since this proxy began, and may have it: ask again"


def _names(one: Any) -> dict[str, Any]:
    return {"resource_type": one.resource_type, "resource_name": one.resource_name}


CONFIGS_ARRAYS: Final = RequestArrays("resources", "responses", _names)


def route_configs(request: Request, addressing: BrokerAddressing, table: RoutingTable) -> RequestDecision:
    """Route to the topic's home, to the broker itself, or to the groups' home."""
    wait_s = FAN_OUT_TIMEOUT_S if request.key == DESCRIBE_CONFIGS else CHANGE_TIMEOUT_S
    return FanOut(_configs(request, decode_request(request), addressing, table), wait_s)


def _configs(request: Request, asked: Any, addressing: BrokerAddressing, table: RoutingTable) -> FanOutSteps:
    describes = request.key == DESCRIBE_CONFIGS
    words = RequestArrays("resources", "results", _names) if describes else CONFIGS_ARRAYS
    shares = SplitRequest(request, asked, words, table, partial(_renamed, addressing=addressing))
    homes = yield from find_topic_homes(
        [one.resource_name for one in asked.resources if one.resource_type == TOPIC_RESOURCE_TYPE], table
    )
    for one in asked.resources:
        name = one.resource_name
        if one.resource_type == TOPIC_RESOURCE_TYPE:
            if not describes and (
                fixed := sorted(THROTTLED_REPLICAS_CONFIGS & {config.name for config in one.configs})
            ):
                says = f"{fixed[0]} names brokers by their own numbers: set it at the cluster's own address"
                shares.refuse(one, Code.POLICY_VIOLATION, says)
            elif not describes and table.writes_paused(name):
                shares.refuse(one, Code.REQUEST_TIMED_OUT, describe_moving_topic(name))
            elif name in homes:
                shares.give(one, BrokerId(homes[name], ANY_BROKER))
            else:
                shares.refuse(one, Code.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_TOPIC)
        elif one.resource_type == GROUP_RESOURCE_TYPE:
            shares.give(one, BrokerId(table.group_home(), ANY_BROKER))
        elif one.resource_type in (BROKER_RESOURCE_TYPE, BROKER_LOGGER_RESOURCE_TYPE):
            _of_broker(shares, one, describes, addressing, table)
        else:
            says = f"settings of the type {one.resource_type} are not served by this proxy"
            shares.refuse(one, Code.POLICY_VIOLATION, says)
    return (yield from shares.errand())


def _of_broker(
    shares: SplitRequest, one: Any, describes: bool, addressing: BrokerAddressing, table: RoutingTable
) -> None:
    name = one.resource_name
    if not name:
        # Cluster-wide broker settings mean nothing over several clusters.
        if describes:
            shares.give(one, BrokerId(get_first_cluster(table), ANY_BROKER))
        else:
            says = "what holds for all brokers is each cluster's own: name a broker, or ask the cluster itself"
            shares.refuse(one, Code.POLICY_VIOLATION, says)
        return
    place = (
        find_broker(int(name), addressing, table) if name.isascii() and name.isdecimal() and len(name) < 10 else None
    )
    if place is None:
        shares.refuse(one, Code.INVALID_REQUEST, f"there is no broker {name} behind this proxy")
    elif not describes and (fixed := sorted(HIDDEN_BROKER_CONFIGS & {config.name for config in one.configs})):
        shares.refuse(one, Code.POLICY_VIOLATION, f"{fixed[0]} is changed at the broker's own address only")
    else:
        shares.give(replace(one, resource_name=str(place.node)), place)


def _renamed(cluster: str, one: Any, addressing: BrokerAddressing) -> Any:
    if one.resource_type in (BROKER_RESOURCE_TYPE, BROKER_LOGGER_RESOURCE_TYPE) and one.resource_name.isdecimal():
        one = replace(one, resource_name=str(addressing.number(cluster, int(one.resource_name))))
    if not hasattr(one, "configs"):
        return one
    return replace(one, configs=tuple(_shown(cluster, config, addressing) for config in one.configs))


def _shown(cluster: str, one: Any, addressing: BrokerAddressing) -> Any:
    if one.name in HIDDEN_BROKER_CONFIGS:
        return replace(one, value=None, is_sensitive=True, synonyms=())
    if one.name in BROKER_ID_CONFIGS | THROTTLED_REPLICAS_CONFIGS:
        synonyms = tuple(replace(two, value=_numbers(cluster, two.value, addressing)) for two in one.synonyms)
        return replace(one, value=_numbers(cluster, one.value, addressing), synonyms=synonyms)
    return one


def _numbers(cluster: str, value: str | None, addressing: BrokerAddressing) -> str | None:
    """Convert a number, or the second one of each pair in `0:1,1:2`; `*` stays."""

    def number(found: re.Match[str]) -> str:
        return str(addressing.number(cluster, int(found[0])))

    return None if value is None else re.sub(r"(?<![^:])\b\d{1,9}\b(?!:)", number, value)


CREATE_TOPICS_ARRAYS: Final = RequestArrays("topics", "topics", lambda one: {"name": one.name})
DELETE_TOPICS_ARRAYS: Final = RequestArrays("topic_names", "responses", lambda one: {"name": one})
CREATE_PARTITIONS_ARRAYS: Final = RequestArrays("topics", "results", lambda one: {"name": one.name})


def route_create_topics(
    request: Request, addressing: BrokerAddressing, table: RoutingTable, news: Callable[[], None]
) -> RequestDecision:
    """Create each topic at its earlier home, else by the name rules. A topic on another cluster counts as existing,
    since clients would be led there.
    """
    return FanOut(_create(request, decode_request(request), addressing, table, news), CHANGE_TIMEOUT_S)


def _create(
    request: Request, asked: Any, addressing: BrokerAddressing, table: RoutingTable, news: Callable[[], None]
) -> FanOutSteps:
    shares = SplitRequest(request, asked, CREATE_TOPICS_ARRAYS, table)
    held = yield from find_holders([str(one.name) for one in asked.topics], table)
    for one in asked.topics:
        name = str(one.name)
        home = _due(name, addressing, table)
        # Whether the topic is there the controller knows better: brokers remember a deleted one for a moment.
        elsewhere = [cluster for cluster in held.get(name, ()) if cluster != home]
        if elsewhere:
            says = f"Topic '{name}' already exists, on cluster {elsewhere[0]}"
            shares.refuse(one, Code.TOPIC_ALREADY_EXISTS, says)
        elif name in table.leaderless:
            shares.refuse(one, Code.TOPIC_ALREADY_EXISTS, describe_decision(name, table.leaderless[name]))
        elif table.unseen:
            shares.refuse(one, Code.REQUEST_TIMED_OUT, describe_unreachable_holders(name, table))
        else:
            _give(shares, one, home, addressing, table)
    body = yield from shares.errand()
    news()
    return body


def _due(topic: str, addressing: BrokerAddressing, table: RoutingTable) -> str:
    """Returns where to create a topic: its home by record or store, else by the name rules."""
    lead = table.leads.get(topic)
    home = lead.cluster if lead else table.homes.get(topic)
    if home in table.clusters:
        return str(home)
    return addressing.new_topics.cluster_of(topic) or get_first_cluster(table)


def _give(shares: SplitRequest, one: Any, cluster: str, addressing: BrokerAddressing, table: RoutingTable) -> None:
    """Give the part to the cluster, with the cluster's node ids."""
    try:
        real = _assigned(one, cluster, addressing, table)
    except LookupError as error:
        shares.refuse(one, Code.INVALID_REPLICA_ASSIGNMENT, str(error.args[0]))
    else:
        shares.give(real, find_controller(cluster, table))


def _assigned(topic: Any, cluster: str, addressing: BrokerAddressing, table: RoutingTable) -> Any:
    if not topic.assignments:
        return topic
    assignments = []
    for one in topic.assignments:
        nodes = []
        for number in one.broker_ids:
            place = find_broker(number, addressing, table)
            if place is None or place.cluster != cluster:
                raise LookupError(f"broker {number} is none of cluster {cluster}, where topic {topic.name} belongs")
            nodes.append(place.node)
        assignments.append(replace(one, broker_ids=tuple(nodes)))
    return replace(topic, assignments=tuple(assignments))


def route_delete_topics(
    request: Request, addressing: BrokerAddressing, table: RoutingTable, news: Callable[[], None]
) -> RequestDecision:
    """Delete each topic on the only cluster that has it. Replicated topics are refused: the mirror decides about the
    twin, and clients would be led there.
    """
    return FanOut(_delete(request, decode_request(request), addressing, table, news), CHANGE_TIMEOUT_S)


def _delete(
    request: Request, asked: Any, addressing: BrokerAddressing, table: RoutingTable, news: Callable[[], None]
) -> FanOutSteps:
    shares = SplitRequest(request, asked, DELETE_TOPICS_ARRAYS, table)
    held = yield from find_holders(map(str, asked.topic_names), table)
    for topic in asked.topic_names:
        clusters = held.get(str(topic), [])
        if table.unseen:
            shares.refuse(topic, Code.REQUEST_TIMED_OUT, describe_unreachable_holders(str(topic), table))
        elif len(clusters) > 1 or topic in table.leaderless or table.has_home(str(topic)):
            why = f"it is on {' and '.join(clusters)}" if len(clusters) > 1 else "it has a home"
            says = f"topic {topic} counts as mirrored, as {why}: it is deleted at its cluster's own address only"
            shares.refuse(topic, Code.POLICY_VIOLATION, says)
        else:
            # A topic unknown to brokers may have been created a moment ago: the controller knows.
            shares.give(topic, find_controller(clusters[0] if clusters else _due(str(topic), addressing, table), table))
    body = yield from shares.errand()
    news()
    return body


def route_create_partitions(request: Request, addressing: BrokerAddressing, table: RoutingTable) -> RequestDecision:
    """Add partitions at the topic's home; the mirror adds them to twins."""
    return FanOut(_create_partitions(request, decode_request(request), addressing, table), CHANGE_TIMEOUT_S)


def _create_partitions(request: Request, asked: Any, addressing: BrokerAddressing, table: RoutingTable) -> FanOutSteps:
    shares = SplitRequest(request, asked, CREATE_PARTITIONS_ARRAYS, table)
    homes = yield from find_topic_homes([str(one.name) for one in asked.topics], table)
    for one in asked.topics:
        if one.name in table.leaderless:
            lacking = table.leaderless[str(one.name)]
            code = _NO_SUCH if lacking.lacks is NoLeaderReason.ELSEWHERE else Code.REQUEST_TIMED_OUT
            shares.refuse(one, code, describe_decision(str(one.name), lacking))
        elif table.writes_paused(str(one.name)):
            shares.refuse(one, Code.REQUEST_TIMED_OUT, describe_moving_topic(str(one.name)))
        else:
            _give(shares, one, homes.get(str(one.name)) or _due(str(one.name), addressing, table), addressing, table)
    return (yield from shares.errand())


def route_to_first_cluster(request: Request, table: RoutingTable) -> RequestDecision:
    """Route DescribeAcls and DescribeClientQuotas. Other clusters may differ, and a mirror writes its own there."""
    decode_request(request)
    first = get_first_cluster(table)
    if not table.clusters[first].answers:
        return RespondNow(
            build_error_response(request, Code.REQUEST_TIMED_OUT, error_message=f"cluster {first} does not answer")
        )
    return FanOut(_of_first(request, first))


def _of_first(request: Request, first: str) -> FanOutSteps:
    (said,) = yield [
        BrokerRequest(BrokerId(first, ANY_BROKER), request.key, request.version, [request.view[request.position :]])
    ]
    if said is None:
        return build_error_response(
            request, Code.REQUEST_TIMED_OUT, error_message=f"cluster {first} did not answer in time"
        )
    return encode_message(replace(decode_response(request.key, request.version, said), throttle_time=timedelta(0)))


def route_list_reassignments(request: Request, addressing: BrokerAddressing, table: RoutingTable) -> RequestDecision:
    """List each topic's reassignments at its home."""
    return FanOut(_reassignments(request, decode_request(request), addressing, table))


def _reassignments(request: Request, asked: Any, addressing: BrokerAddressing, table: RoutingTable) -> FanOutSteps:
    wanted: dict[str, Any] = dict.fromkeys(table.clusters)
    if asked.topics is not None:
        homes = yield from find_topic_homes([str(one.name) for one in asked.topics], table)
        wanted = {}
        for one in asked.topics:
            if home := homes.get(str(one.name)):
                wanted[home] = (*wanted.get(home, ()), one)
    asks = [
        BrokerRequest(
            find_controller(name, table), request.key, request.version, encode_message(replace(asked, topics=topics))
        )
        for name, topics in wanted.items()
        if table.clusters[name].answers
    ]
    said = (yield asks) if asks else []
    told: list[Any] = []
    failed: Any = None
    for ask, heard in zip(asks, said, strict=True):
        if heard is None:
            continue
        answer = decode_response(request.key, request.version, heard)
        failed = answer if answer.error_code else failed
        here = [one for one in answer.topics if not table.is_elsewhere(str(one.name), ask.place.cluster)]
        told += [_renumbered(one, ask.place.cluster, addressing) for one in here]
    if failed is not None and not told:
        return encode_message(replace(failed, throttle_time=timedelta(0)))
    if wanted and not any(said):
        return build_error_response(
            request, Code.REQUEST_TIMED_OUT, error_message=f"cluster {' or '.join(wanted)} does not answer"
        )
    return encode_message(build_message(get_response_type(request.key, request.version), topics=tuple(told)))


def _renumbered(topic: Any, cluster: str, addressing: BrokerAddressing) -> Any:
    def numbers(one: Any) -> dict[str, tuple[int, ...]]:
        names = ("replicas", "adding_replicas", "removing_replicas")
        return {name: tuple(addressing.number(cluster, node) for node in getattr(one, name)) for name in names}

    return replace(topic, partitions=tuple(replace(one, **numbers(one)) for one in topic.partitions))


def route_describe_log_dirs(request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Describe the broker's log dirs without twins: clients know no replicas there."""
    decode_request(request)
    if place is None:
        return respond_empty(request)
    return ForwardRequest(place, rewrite=partial(_without_twins, request=request, place=place, table=table))


def _without_twins(view: memoryview, at: int, request: Request, place: BrokerId, table: RoutingTable) -> Parts:
    answer = decode_response(request.key, request.version, view[at:])
    results = tuple(
        replace(one, topics=tuple(two for two in one.topics if not table.is_elsewhere(str(two.name), place.cluster)))
        for one in answer.results
    )
    return encode_message(replace(answer, results=results))


def route_list_transactions(request: Request, place: BrokerId | None, _: RoutingTable) -> RequestDecision:
    """List the broker's transactions. Clients ask every broker, and so see all clusters."""
    decode_request(request)
    return respond_empty(request) if place is None else ForwardRequest(place)


def route_describe_transactions(request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Describe transactions at their coordinators, on the groups' home."""
    if place is not None and place.cluster == table.group_home():
        return ForwardRequest(place)
    part = get_element_type(get_response_type(request.key, request.version), "transaction_states")
    code = to_error_code(Code.NOT_COORDINATOR)
    states = (
        build_message(part, transactional_id=one, error_code=code) for one in decode_request(request).transactional_ids
    )
    return RespondNow(
        encode_message(build_message(get_response_type(request.key, request.version), transaction_states=tuple(states)))
    )


def respond_empty(request: Request) -> RequestDecision:
    """Answer for the first port, which belongs to no broker."""
    return RespondNow(encode_message(build_message(get_response_type(request.key, request.version))))


class GroupDeletion:
    """Deletes groups and offsets for one client; `committed` knows coordinators elsewhere."""

    def __init__(self, committed: OffsetRequests) -> None:
        self._committed = committed

    def delete_groups(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Delete groups on all clusters, but not while groups move or a cluster is away: a later group of that name
        would start at offsets left there.
        """
        asked = decode_request(request)
        if place is None or place.cluster != table.group_home():
            return RespondNow(_deleted(request, dict.fromkeys(asked.groups_names, Code.NOT_COORDINATOR)))
        if table.groups_gathering:
            return ParkRequest(_deleted(request, dict.fromkeys(asked.groups_names, _AGAIN)))
        if len(table.clusters) == 1:
            return ForwardRequest(place, topics=(GROUPS_HOME,))
        if len(table.answering()) < len(table.clusters):
            return RespondNow(_deleted(request, dict.fromkeys(asked.groups_names, _AGAIN)))
        return FanOut(self._delete_groups(request, asked, place, table), CHANGE_TIMEOUT_S, (GROUPS_HOME,))

    def _delete_groups(self, request: Request, asked: Any, place: BrokerId, table: RoutingTable) -> FanOutSteps:
        codes = yield from self._deleted_at(place, request.version, asked.groups_names)
        for cluster in table.clusters:
            if cluster == place.cluster:
                continue
            left = [group for group, code in codes.items() if code in (Code.NONE, Code.GROUP_ID_NOT_FOUND)]
            there = yield from self._deleted_on(cluster, request.version, left, table)
            codes |= {group: code for group, code in there.items() if code != Code.GROUP_ID_NOT_FOUND}
        return _deleted(request, codes)

    def _deleted_at(self, place: BrokerId, version: int, groups: Sequence[Any]) -> SubRequests[dict[Any, int]]:
        body = encode_message(build_message(get_request_type(DELETE_GROUPS, version), groups_names=tuple(groups)))
        (said,) = yield [BrokerRequest(place, DELETE_GROUPS, version, body)]
        told = () if said is None else decode_response(DELETE_GROUPS, version, said).results
        return dict.fromkeys(groups, int(_GONE)) | {one.group_id: int(one.error_code) for one in told}

    def _deleted_on(
        self, cluster: str, version: int, groups: Sequence[Any], table: RoutingTable
    ) -> SubRequests[dict[Any, int]]:
        """Delete groups until one has no coordinator: a cluster that hangs would delay each of the others."""
        codes = dict.fromkeys(groups, int(_AGAIN))
        for group in groups:
            where = yield from self._committed.coordinator(str(group), cluster, table)
            if isinstance(where, Code):
                break
            said = yield from self._deleted_at(where, version, [group])
            if self._committed.moved(group, where, [*said.values()]):
                break
            codes |= said
        return codes

    def delete_places(self, request: Request, place: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """OffsetDelete: delete each offset where it is kept; elsewhere only without members."""
        asked = decode_request(request)
        if place is None or place.cluster != table.group_home():
            return RespondNow(build_error_response(request, Code.NOT_COORDINATOR))
        if table.groups_gathering:
            return ParkRequest(build_error_response(request, _AGAIN))
        shares = group_topics_by_cluster(asked.topics, table)
        if set(shares) <= {place.cluster}:
            return ForwardRequest(place, topics=(GROUPS_HOME,))
        return FanOut(self._delete_places(request, asked, shares, place, table), CHANGE_TIMEOUT_S, (GROUPS_HOME,))

    def _delete_places(
        self, request: Request, asked: Any, shares: dict[str, tuple[Any, ...]], place: BrokerId, table: RoutingTable
    ) -> FanOutSteps:
        idle = yield from check_group_idle(str(asked.group_id), place, table)
        if idle is None:
            return build_error_response(request, _AGAIN)
        kind = get_response_type(OFFSET_DELETE, request.version)
        told: list[Any] = []
        asks: list[BrokerRequest] = []
        for cluster, topics in shares.items():
            where: BrokerId | Code = place
            if cluster != place.cluster:
                where = Code.GROUP_SUBSCRIBED_TO_TOPIC
                if idle:
                    where = yield from self._committed.coordinator(str(asked.group_id), cluster, table)
            if isinstance(where, Code):
                told += [build_topic_errors(kind, one, where) for one in topics]
            else:
                asks.append(
                    BrokerRequest(where, OFFSET_DELETE, request.version, encode_message(replace(asked, topics=topics)))
                )
        said = (yield asks) if asks else []
        for ask, heard in zip(asks, said, strict=True):
            answer = None if heard is None else decode_response(OFFSET_DELETE, request.version, heard)
            code = int(_GONE if answer is None else answer.error_code)
            if ask.place != place and self._committed.moved(asked.group_id, ask.place, [code]):
                code = _AGAIN
            if code == Code.GROUP_ID_NOT_FOUND and len(shares) > 1:
                code = Code.NONE  # Nothing to delete here, but maybe elsewhere.
                told += [build_topic_errors(kind, one, Code.NONE) for one in shares[ask.place.cluster]]
            elif code:
                if len(shares) == 1:
                    return build_error_response(request, Code(code))
                told += [build_topic_errors(kind, one, code) for one in shares[ask.place.cluster]]
            elif answer is not None:
                told += answer.topics
        return encode_message(build_message(kind, topics=tuple(told)))


def _deleted(request: Request, codes: dict[Any, Any]) -> Parts:
    kind = get_response_type(DELETE_GROUPS, request.version)
    part = get_element_type(kind, "results")
    results = tuple(
        build_message(part, group_id=group, error_code=to_error_code(code)) for group, code in codes.items()
    )
    return encode_message(build_message(kind, results=results))


def build_refusal(request: Request) -> Parts:
    kind = get_response_type(request.key, request.version)
    return encode_message(_ANSWERS[request.key](kind, decode_request(request)))


def _each(kind: Any, told: str, named: list[dict[str, Any]], says: str, **whole: Any) -> Any:
    """Build the error for each part, in order."""
    part = get_element_type(kind, told)
    parts = tuple(build_message(part, error_code=_REFUSED, error_message=says, **names) for names in named)
    return build_message(kind, **{told: parts}, **whole)


def _create_acls(kind: Any, asked: Any) -> Any:
    return _each(kind, "results", [{} for _ in asked.creations], ACLS_REFUSED_MESSAGE)


def _delete_acls(kind: Any, asked: Any) -> Any:
    return _each(kind, "filter_results", [{} for _ in asked.filters], ACLS_REFUSED_MESSAGE)


def _alter_quotas(kind: Any, asked: Any) -> Any:
    entity = get_element_type(kind, "entries", "entity")
    named = [
        {
            "entity": tuple(
                build_message(entity, entity_type=two.entity_type, entity_name=two.entity_name) for two in one.entity
            )
        }
        for one in asked.entries
    ]
    return _each(kind, "entries", named, QUOTAS_REFUSED_MESSAGE)


def _alter_users(kind: Any, asked: Any) -> Any:
    users = dict.fromkeys(one.name for one in (*asked.deletions, *asked.upsertions))
    return _each(kind, "results", [{"user": user} for user in users], SCRAM_REFUSED_MESSAGE)


def _elect(kind: Any, asked: Any) -> Any:
    """Refuse an election. Without named partitions the response has only an error code."""
    if asked.topic_partitions is None:
        return build_message(kind, error_code=_REFUSED)
    topic, part = (
        get_element_type(kind, "replica_election_results"),
        get_element_type(kind, "replica_election_results", "partition_result"),
    )
    results = []
    for one in asked.topic_partitions:
        parts = (
            build_message(part, partition_id=n, error_code=_REFUSED, error_message=ELECTION_REFUSED_MESSAGE)
            for n in one.partitions
        )
        results.append(build_message(topic, topic=one.topic, partition_result=tuple(parts)))
    return build_message(kind, replica_election_results=tuple(results))


def _move_replicas(kind: Any, asked: Any) -> Any:
    topic, part = get_element_type(kind, "responses"), get_element_type(kind, "responses", "partitions")
    responses = []
    for one in asked.topics:
        numbers = [two.partition_index for two in one.partitions]
        parts = (
            build_message(part, partition_index=n, error_code=_REFUSED, error_message=REASSIGNMENT_REFUSED_MESSAGE)
            for n in numbers
        )
        responses.append(build_message(topic, name=one.name, partitions=tuple(parts)))
    return build_message(
        kind, error_code=_REFUSED, error_message=REASSIGNMENT_REFUSED_MESSAGE, responses=tuple(responses)
    )


_ANSWERS: Final[Mapping[int, Callable[[Any, Any], Any]]] = {
    CREATE_ACLS: _create_acls,
    DELETE_ACLS: _delete_acls,
    ELECT_LEADERS: _elect,
    ALTER_PARTITION_REASSIGNMENTS: _move_replicas,
    ALTER_CLIENT_QUOTAS: _alter_quotas,
    ALTER_SCRAM_USERS: _alter_users,
}
REFUSED_API_KEYS: Final = frozenset(_ANSWERS)


AdminRequestRule: TypeAlias = Callable[[Request, BrokerId | None, RoutingTable], RequestDecision]


def build_admin_rules(
    addressing: BrokerAddressing, committed: OffsetRequests, news: Callable[[], None]
) -> Mapping[int, AdminRequestRule]:
    ends = GroupDeletion(committed)
    found: dict[int, AdminRequestRule] = {
        CREATE_TOPICS: lambda request, _, table: route_create_topics(request, addressing, table, news),
        DELETE_TOPICS: lambda request, _, table: route_delete_topics(request, addressing, table, news),
        CREATE_PARTITIONS: lambda request, _, table: route_create_partitions(request, addressing, table),
        LIST_PARTITION_REASSIGNMENTS: lambda request, _, table: route_list_reassignments(request, addressing, table),
        DELETE_RECORDS: route_by_partitions,
        DESCRIBE_PRODUCERS: route_by_partitions,
        DESCRIBE_LOG_DIRS: route_describe_log_dirs,
        LIST_TRANSACTIONS: route_list_transactions,
        DESCRIBE_TRANSACTIONS: route_describe_transactions,
        DELETE_GROUPS: ends.delete_groups,
        OFFSET_DELETE: ends.delete_places,
    }
    for key in (DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS):
        found[key] = lambda request, _, table: route_configs(request, addressing, table)
    for key in (DESCRIBE_ACLS, DESCRIBE_CLIENT_QUOTAS):
        found[key] = lambda request, _, table: route_to_first_cluster(request, table)
    return found | dict.fromkeys(REFUSED_API_KEYS, lambda request, _, __: RespondNow(build_refusal(request)))


_GUARDED_WORDS: Final[Mapping[int, RequestArrays]] = {
    CREATE_TOPICS: CREATE_TOPICS_ARRAYS,
    DELETE_TOPICS: DELETE_TOPICS_ARRAYS,
    CREATE_PARTITIONS: CREATE_PARTITIONS_ARRAYS,
    ALTER_CONFIGS: CONFIGS_ARRAYS,
    INCREMENTAL_ALTER_CONFIGS: CONFIGS_ARRAYS,
}
_GUARDED_NAMES: Final[Mapping[int, Callable[[Any], Iterable[str]]]] = {
    CREATE_TOPICS: lambda asked: map(attrgetter("name"), asked.topics),
    DELETE_TOPICS: attrgetter("topic_names"),
    CREATE_PARTITIONS: lambda asked: map(attrgetter("name"), asked.topics),
    DELETE_RECORDS: lambda asked: map(attrgetter("name"), asked.topics),
    **dict.fromkeys(
        (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS),
        lambda asked: (one.resource_name for one in asked.resources if one.resource_type == TOPIC_RESOURCE_TYPE),
    ),
}


def refuse_guarded(request: Request, table: RoutingTable) -> RequestDecision | None:
    """Refuse changes of Kafka's and Twinshore's own topics, as a whole, and requests as a replica; None if allowed."""
    if request.version >= _OF_REPLICAS.get(request.key, 1 << 15):
        return _as_replica(request)
    if (names := _GUARDED_NAMES.get(request.key)) is None:
        return None
    asked = decode_request(request)
    guarded = next((name for name in map(str, names(asked)) if is_protected_topic(name)), None)
    if guarded is None:
        return None
    if request.key == DELETE_RECORDS:
        return refuse_all_partitions(request, asked, Code.POLICY_VIOLATION)
    words = _GUARDED_WORDS[request.key]
    shares = SplitRequest(request, asked, words, table)
    for one in getattr(asked, words.asked):
        says = f"topic {guarded} is Kafka's or Twinshore's own: change it at the cluster's own address, alone"
        shares.refuse(one, Code.POLICY_VIOLATION, says)
    return FanOut(shares.errand())


def _as_replica(request: Request) -> RequestDecision | None:
    try:
        (replica,) = I32.unpack_from(request.view, request.position)
    except PAST_END_ERRORS as error:
        raise WireError(f"{api_name(request.key)}: it has no replica id") from error
    if replica in _CONSUMERS:
        return None
    return DisconnectClient(f"it asked {api_name(request.key)} as replica {replica}, and no broker comes by a proxy")
