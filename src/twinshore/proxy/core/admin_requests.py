"""Admin requests: which cluster answers each, which all answer, and which are refused.

A rule takes a request and the routing table, and returns a decision. Responses of several clusters are merged; one that
is away costs only its part. A refusal is in the request's own response, so that client libraries show it.

Brokers have the numbers that clients know. Their listeners and the quorum are hidden.

The groups' home goes first, since only the home knows whether a group has members; nothing is deleted elsewhere before.

Requests are refused that several clusters would have to do alike, or only one can know. Produce is refused in
`record_requests`, by the same rule (`filters.is_reserved_topic`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from twinshore.config.errors import WireError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.kafka.protocol import apis
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.primitives import I32, PAST_END_ERRORS
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core import api_versions
from twinshore.proxy.core.group_requests import OffsetRequests, check_group_idle, group_topics_by_cluster
from twinshore.proxy.core.message_codec import (
    ask_broker,
    ask_brokers,
    ask_metadata,
    build_error_response,
    build_message,
    build_request,
    build_response,
    build_topic_errors,
    decode_request,
    decode_response,
    encode_message,
    get_element_type,
    get_response_type,
)
from twinshore.proxy.core.metadata_requests import refuse_all_partitions, route_by_partitions
from twinshore.proxy.core.model import (
    ANY_BROKER,
    FAN_OUT_TIMEOUT_S,
    BrokerAddressing,
    BrokerId,
    DisconnectClient,
    FanOut,
    FanOutSteps,
    ForwardRequest,
    ParkRequest,
    Parts,
    RequestDecision,
    RespondNow,
    RoutingTable,
    SubRequests,
)
from twinshore.replication.core.filters import is_reserved_topic
from twinshore.routing.core.leader_cluster import NoLeaderReason, describe_decision

# Changes take longer than queries: so long for finding where, and again for the change. Clients wait for half a
# minute by default.
CHANGE_TIMEOUT_S: Final = 12.0
_THERE: Final = (Code.none, Code.leader_not_available)
_NOT_THERE: Final = (Code.unknown_topic_or_partition, Code.invalid_topic_exception)
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
# After this error every client repeats the request at the same broker.
_AGAIN: Final = Code.coordinator_load_in_progress
# For a silent coordinator: the next try looks for another.
_GONE: Final = Code.not_coordinator
ACLS_REFUSED_MESSAGE: Final = (
    "ACLs are changed at a cluster's own address: this proxy has several, and on a mirror's target a right to write"
    " would spoil twins"
)
ELECTION_REFUSED_MESSAGE: Final = "leaders are elected at the cluster's own address, not by this proxy"
REASSIGNMENT_REFUSED_MESSAGE: Final = "replicas are moved at the cluster's own address, not by this proxy"
QUOTAS_REFUSED_MESSAGE: Final = "quotas are set at each cluster's own address: this proxy has several"
SCRAM_REFUSED_MESSAGE: Final = "SCRAM users are kept at each cluster's own address, not by this proxy"
# From this version the replica id is the first field; a consumer's is -1, a debugger's -2.
_OF_REPLICAS: Final = {apis.FETCH: 0, apis.LIST_OFFSETS: 0, apis.OFFSET_FOR_LEADER_EPOCH: 3}
_CONSUMERS: Final = (-1, -2)


class RequestArrays(NamedTuple):
    """The array of parts in a request, that of results in the response, and the fields that name the part there."""

    parts: str
    results: str
    key: Callable[[Any], dict[str, Any]]


def _name(topic: Any) -> dict[str, Any]:
    return {"name": topic.name}


def _resource(resource: Any) -> dict[str, Any]:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


_ARRAYS: Final[Mapping[int, RequestArrays]] = {
    api_versions.CREATE_TOPICS: RequestArrays("topics", "topics", _name),
    api_versions.DELETE_TOPICS: RequestArrays("topic_names", "responses", lambda topic: {"name": topic}),
    api_versions.CREATE_PARTITIONS: RequestArrays("topics", "results", _name),
    apis.DESCRIBE_CONFIGS: RequestArrays("resources", "results", _resource),
    api_versions.ALTER_CONFIGS: RequestArrays("resources", "responses", _resource),
    api_versions.INCREMENTAL_ALTER_CONFIGS: RequestArrays("resources", "responses", _resource),
}


class SplitRequest:
    """A request over several clusters, with one merged response.

    Each part goes to a broker or is refused here. `rename`: converts a cluster's result for clients.
    """

    def __init__(
        self,
        request: Request,
        asked: Any,
        table: RoutingTable,
        rename: Callable[[str, Any], Any] = lambda _, result: result,
    ) -> None:
        self._request, self._asked, self._table, self._rename = request, asked, table, rename
        self._arrays = _ARRAYS[request.key]
        self._parts: dict[BrokerId, list[Any]] = {}
        self._refused: list[Any] = []

    def give(self, part: Any, broker: BrokerId) -> None:
        """Send the part to this broker, or refuse it if the cluster is away."""
        if self._table.clusters[broker.cluster].answers:
            self._parts.setdefault(broker, []).append(part)
        else:
            error = self._error(part, Code.request_timed_out, f"cluster {broker.cluster} does not answer")
            self._refused.append(self._rename(broker.cluster, error))

    def refuse(self, part: Any, code: Code, why: str) -> None:
        self._refused.append(self._error(part, code, why))

    def _error(self, part: Any, code: Code, why: str) -> Any:
        kind = get_element_type(get_response_type(self._request.key, self._request.version), self._arrays.results)
        return build_message(kind, error_code=code, error_message=why, **self._arrays.key(part))

    def ask(self) -> FanOutSteps:
        """Ask the brokers, and merge the results."""
        arrays, results, throttle = self._arrays, list(self._refused), timedelta(0)
        answers = yield from ask_brokers(
            {broker: replace(self._asked, **{arrays.parts: tuple(parts)}) for broker, parts in self._parts.items()}
        )
        for broker, parts in self._parts.items():
            answer = answers[broker]
            if answer is None:
                why = f"cluster {broker.cluster} did not answer in time, and the outcome is unknown"
                found = [self._error(part, Code.request_timed_out, why) for part in parts]
            else:
                found = getattr(answer, arrays.results)
                if any(one.error_code == Code.throttling_quota_exceeded for one in found):
                    throttle = max(throttle, answer.throttle_time)
            results += [self._rename(broker.cluster, one) for one in found]
        return build_response(self._request, **{arrays.results: results, "throttle_time": throttle})


def get_first_cluster(table: RoutingTable) -> str:
    """Returns the first cluster in the settings, on whichever groups are."""
    return next(iter(table.clusters))


def find_controller(cluster: str, table: RoutingTable) -> BrokerId:
    """Returns the cluster's controller, or any broker: KRaft brokers ask theirs."""
    controller, brokers = table.clusters[cluster].controller, table.clusters[cluster].brokers
    return BrokerId(cluster, controller if controller in brokers else ANY_BROKER)


def find_broker(number: int, addressing: BrokerAddressing, table: RoutingTable) -> BrokerId | None:
    """Returns the known broker with this number, if any."""
    nodes = {name: cluster.brokers for name, cluster in table.clusters.items()}
    broker = addressing.place_of(number, nodes) if number >= 0 else None
    return broker if broker is not None and broker.node in nodes.get(broker.cluster, ()) else None


def find_holders(topics: Iterable[str], table: RoutingTable) -> SubRequests[dict[str, list[str]]]:
    """Ask which clusters have each topic; for one that is away the last look counts."""
    names = list(dict.fromkeys(topics))
    brokers = {BrokerId(cluster, ANY_BROKER): names for cluster in table.answering()} if names else {}
    answers = yield from ask_metadata(brokers, table)
    codes: dict[str, dict[str, int]] = {}
    for broker, answer in answers.items():
        if answer is not None:
            codes[broker.cluster] = {str(topic.name): topic.error_code for topic in answer.topics}
    holders: dict[str, list[str]] = {}
    for cluster, known in table.clusters.items():
        for name in names:
            code = codes.get(cluster, {}).get(name)
            if code in _THERE or (code not in _NOT_THERE and name in known.topics):
                holders.setdefault(name, []).append(cluster)
    return holders


def find_topic_homes(topics: Iterable[str], table: RoutingTable) -> SubRequests[dict[str, str]]:
    """Returns the topics' homes; only for unknown topics the clusters are asked.

    Topics at home on other clusters than the proxy's are left out.
    """
    names = set(topics) - table.leaderless.keys()
    known = {name: home for name in names if (home := table.route(name)) is not None}
    holders = yield from find_holders(sorted(names - known.keys()), table)
    return known | {name: clusters[0] for name, clusters in holders.items()}


def describe_moving_topic(topic: str) -> str:
    return f"topic {topic} may not be changed now, as a switch moves it or its home is not known: ask again"


def describe_unreachable_holders(topic: str, table: RoutingTable) -> str:
    """Returns why the topic cannot be created or deleted while another cluster may have it."""
    silent = " and ".join(table.unseen)
    return f"topic {topic}: cluster {silent} has not answered since this proxy began, and may have it: ask again"


class AdminRequests:
    """The admin requests of one client.

    `committed` knows coordinators elsewhere. `news` asks for a new look at the clusters.
    """

    def __init__(self, addressing: BrokerAddressing, committed: OffsetRequests, news: Callable[[], None]) -> None:
        self._addressing, self._committed, self._news = addressing, committed, news

    def configs(self, request: Request, asked: Any, table: RoutingTable) -> FanOutSteps:
        """Describe or change configs at the topic's home, at the broker itself, or at the groups' home."""
        describes = request.key == apis.DESCRIBE_CONFIGS
        split = SplitRequest(request, asked, table, self._rename_config)
        topics = [one.resource_name for one in asked.resources if one.resource_type == TOPIC_RESOURCE_TYPE]
        homes = yield from find_topic_homes(topics, table)
        for resource in asked.resources:
            name = resource.resource_name
            changes = set() if describes else {config.name for config in resource.configs}
            if resource.resource_type == TOPIC_RESOURCE_TYPE:
                if fixed := sorted(THROTTLED_REPLICAS_CONFIGS & changes):
                    why = f"{fixed[0]} names brokers by their own numbers: set it at the cluster's own address"
                    split.refuse(resource, Code.policy_violation, why)
                elif not describes and table.writes_paused(name):
                    split.refuse(resource, Code.request_timed_out, describe_moving_topic(name))
                elif name in homes:
                    split.give(resource, BrokerId(homes[name], ANY_BROKER))
                else:
                    why = "This server does not host this topic-partition."
                    split.refuse(resource, Code.unknown_topic_or_partition, why)
            elif resource.resource_type == GROUP_RESOURCE_TYPE:
                split.give(resource, BrokerId(table.group_home(), ANY_BROKER))
            elif resource.resource_type in (BROKER_RESOURCE_TYPE, BROKER_LOGGER_RESOURCE_TYPE):
                self._broker_configs(split, resource, changes, describes, table)
            else:
                why = f"settings of the type {resource.resource_type} are not served by this proxy"
                split.refuse(resource, Code.policy_violation, why)
        return (yield from split.ask())

    def _broker_configs(
        self, split: SplitRequest, resource: Any, changes: set[str], describes: bool, table: RoutingTable
    ) -> None:
        name = resource.resource_name
        if not name:
            # Cluster-wide broker settings mean nothing over several clusters.
            if describes:
                split.give(resource, BrokerId(get_first_cluster(table), ANY_BROKER))
            else:
                why = "what holds for all brokers is each cluster's own: name a broker, or ask the cluster itself"
                split.refuse(resource, Code.policy_violation, why)
            return
        is_number = name.isascii() and name.isdecimal() and len(name) < 10
        broker = find_broker(int(name), self._addressing, table) if is_number else None
        if broker is None:
            split.refuse(resource, Code.invalid_request, f"there is no broker {name} behind this proxy")
        elif fixed := sorted(HIDDEN_BROKER_CONFIGS & changes):
            split.refuse(resource, Code.policy_violation, f"{fixed[0]} is changed at the broker's own address only")
        else:
            split.give(replace(resource, resource_name=str(broker.node)), broker)

    def _rename_config(self, cluster: str, result: Any) -> Any:
        of_broker = result.resource_type in (BROKER_RESOURCE_TYPE, BROKER_LOGGER_RESOURCE_TYPE)
        if of_broker and result.resource_name.isdecimal():
            result = replace(result, resource_name=str(self._addressing.number(cluster, int(result.resource_name))))
        if not hasattr(result, "configs"):
            return result
        return replace(result, configs=tuple(self._show_config(cluster, config) for config in result.configs))

    def _show_config(self, cluster: str, config: Any) -> Any:
        if config.name in HIDDEN_BROKER_CONFIGS:
            return replace(config, value=None, is_sensitive=True, synonyms=())
        if config.name in BROKER_ID_CONFIGS | THROTTLED_REPLICAS_CONFIGS:
            synonyms = tuple(replace(one, value=self._renumber(cluster, one.value)) for one in config.synonyms)
            return replace(config, value=self._renumber(cluster, config.value), synonyms=synonyms)
        return config

    def _renumber(self, cluster: str, value: str | None) -> str | None:
        """Convert a number, or the second one of each pair in `0:1,1:2`; `*` stays."""

        def number(found: re.Match[str]) -> str:
            return str(self._addressing.number(cluster, int(found[0])))

        return None if value is None else re.sub(r"(?<![^:])\b\d{1,9}\b(?!:)", number, value)

    def create_topics(self, request: Request, asked: Any, table: RoutingTable) -> FanOutSteps:
        """Create each topic at its earlier home, else by the name rules. A topic on another cluster counts as existing,
        since clients would be led there.
        """
        split = SplitRequest(request, asked, table)
        holders = yield from find_holders([str(topic.name) for topic in asked.topics], table)
        for topic in asked.topics:
            name = str(topic.name)
            home = self._home_of_new(name, table)
            # Whether the topic is there the controller knows better: brokers remember a deleted one for a moment.
            elsewhere = [cluster for cluster in holders.get(name, ()) if cluster != home]
            if elsewhere:
                why = f"Topic '{name}' already exists, on cluster {elsewhere[0]}"
                split.refuse(topic, Code.topic_already_exists, why)
            elif name in table.leaderless:
                split.refuse(topic, Code.topic_already_exists, describe_decision(name, table.leaderless[name]))
            elif table.unseen:
                split.refuse(topic, Code.request_timed_out, describe_unreachable_holders(name, table))
            else:
                self._give_topic(split, topic, home, table)
        body = yield from split.ask()
        self._news()
        return body

    def _home_of_new(self, topic: str, table: RoutingTable) -> str:
        """Returns where to create a topic: its home by record or store, else by the name rules."""
        lead = table.leads.get(topic)
        home = lead.cluster if lead else table.homes.get(topic)
        if home in table.clusters:
            return str(home)
        return self._addressing.new_topics.cluster_of(topic) or get_first_cluster(table)

    def _give_topic(self, split: SplitRequest, topic: Any, cluster: str, table: RoutingTable) -> None:
        """Give the topic to the cluster, with the cluster's node ids."""
        assignments = []
        for assignment in topic.assignments or ():
            nodes = []
            for number in assignment.broker_ids:
                broker = find_broker(number, self._addressing, table)
                if broker is None or broker.cluster != cluster:
                    why = f"broker {number} is none of cluster {cluster}, where topic {topic.name} belongs"
                    split.refuse(topic, Code.invalid_replica_assignment, why)
                    return
                nodes.append(broker.node)
            assignments.append(replace(assignment, broker_ids=tuple(nodes)))
        if assignments:
            topic = replace(topic, assignments=tuple(assignments))
        split.give(topic, find_controller(cluster, table))

    def delete_topics(self, request: Request, asked: Any, table: RoutingTable) -> FanOutSteps:
        """Delete each topic on the only cluster that has it. Replicated topics are refused: the mirror decides about
        the twin, and clients would be led there.
        """
        split = SplitRequest(request, asked, table)
        holders = yield from find_holders(map(str, asked.topic_names), table)
        for topic in asked.topic_names:
            clusters = holders.get(str(topic), [])
            if table.unseen:
                split.refuse(topic, Code.request_timed_out, describe_unreachable_holders(str(topic), table))
            elif len(clusters) > 1 or topic in table.leaderless or table.has_home(str(topic)):
                reason = f"it is on {' and '.join(clusters)}" if len(clusters) > 1 else "it has a home"
                why = f"topic {topic} counts as mirrored, as {reason}: it is deleted at its cluster's own address only"
                split.refuse(topic, Code.policy_violation, why)
            else:
                # A topic unknown to brokers may have been created a moment ago: the controller knows.
                cluster = clusters[0] if clusters else self._home_of_new(str(topic), table)
                split.give(topic, find_controller(cluster, table))
        body = yield from split.ask()
        self._news()
        return body

    def create_partitions(self, request: Request, asked: Any, table: RoutingTable) -> FanOutSteps:
        """Add partitions at the topic's home; the mirror adds them to twins."""
        split = SplitRequest(request, asked, table)
        homes = yield from find_topic_homes([str(topic.name) for topic in asked.topics], table)
        for topic in asked.topics:
            name = str(topic.name)
            if name in table.leaderless:
                decision = table.leaderless[name]
                is_unknown = decision.lacks is NoLeaderReason.ELSEWHERE
                code = Code.unknown_topic_or_partition if is_unknown else Code.request_timed_out
                split.refuse(topic, code, describe_decision(name, decision))
            elif table.writes_paused(name):
                split.refuse(topic, Code.request_timed_out, describe_moving_topic(name))
            else:
                self._give_topic(split, topic, homes.get(name) or self._home_of_new(name, table), table)
        return (yield from split.ask())

    def ask_first_cluster(self, request: Request, asked: Any, table: RoutingTable) -> FanOutSteps:
        """Describe ACLs or quotas of the first cluster. Others may differ, and a mirror writes its own there."""
        first = get_first_cluster(table)
        answers = table.clusters[first].answers
        answer = (yield from ask_broker(BrokerId(first, ANY_BROKER), asked)) if answers else None
        if answer is None:
            why = f"cluster {first} does not answer"
            return build_error_response(request, Code.request_timed_out, error_message=why)
        return encode_message(replace(answer, throttle_time=timedelta(0)))

    def list_reassignments(self, request: Request, asked: Any, table: RoutingTable) -> FanOutSteps:
        """List each topic's reassignments at its home."""
        wanted: dict[str, Any] = dict.fromkeys(table.clusters)
        if asked.topics is not None:
            homes = yield from find_topic_homes([str(topic.name) for topic in asked.topics], table)
            wanted = {}
            for topic in asked.topics:
                if home := homes.get(str(topic.name)):
                    wanted[home] = (*wanted.get(home, ()), topic)
        questions = {
            find_controller(name, table): replace(asked, topics=topics)
            for name, topics in wanted.items()
            if table.clusters[name].answers
        }
        answers = yield from ask_brokers(questions)
        found: list[Any] = []
        failed: Any = None
        for (cluster, _), answer in answers.items():
            if answer is not None:
                failed = answer if answer.error_code else failed
                here = [topic for topic in answer.topics if not table.is_elsewhere(str(topic.name), cluster)]
                found += [self._renumber_replicas(topic, cluster) for topic in here]
        if failed is not None and not found:
            return encode_message(replace(failed, throttle_time=timedelta(0)))
        if wanted and not any(answers.values()):
            why = f"cluster {' or '.join(wanted)} does not answer"
            return build_error_response(request, Code.request_timed_out, error_message=why)
        return build_response(request, topics=found)

    def _renumber_replicas(self, topic: Any, cluster: str) -> Any:
        number, partitions = partial(self._addressing.number, cluster), []
        for one in topic.partitions:
            names = ("replicas", "adding_replicas", "removing_replicas")
            partitions.append(replace(one, **{name: tuple(map(number, getattr(one, name))) for name in names}))
        return replace(topic, partitions=tuple(partitions))

    def delete_groups(self, request: Request, broker: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """Delete groups on all clusters, but not while groups move or a cluster is away: a later group of that name
        would start at offsets left there.
        """
        asked = decode_request(request)
        if broker is None or broker.cluster != table.group_home():
            return RespondNow(_group_codes(request, dict.fromkeys(asked.groups_names, Code.not_coordinator)))
        if table.groups_gathering:
            return ParkRequest(_group_codes(request, dict.fromkeys(asked.groups_names, _AGAIN)))
        if len(table.clusters) == 1:
            return ForwardRequest(broker, topics=(GROUPS_HOME,))
        if len(table.answering()) < len(table.clusters):
            return RespondNow(_group_codes(request, dict.fromkeys(asked.groups_names, _AGAIN)))
        return FanOut(self._delete_groups(request, asked, broker, table), CHANGE_TIMEOUT_S, (GROUPS_HOME,))

    def _delete_groups(self, request: Request, asked: Any, broker: BrokerId, table: RoutingTable) -> FanOutSteps:
        codes = yield from self._delete_at(broker, request.version, asked.groups_names)
        for cluster in table.clusters:
            if cluster == broker.cluster:
                continue
            left = [group for group, code in codes.items() if code in (Code.none, Code.group_id_not_found)]
            there = yield from self._delete_on(cluster, request.version, left, table)
            codes |= {group: code for group, code in there.items() if code != Code.group_id_not_found}
        return _group_codes(request, codes)

    def _delete_at(self, broker: BrokerId, version: int, groups: Sequence[Any]) -> SubRequests[dict[Any, int]]:
        question = build_request(api_versions.DELETE_GROUPS, version, groups_names=tuple(groups))
        answer = yield from ask_broker(broker, question)
        results = () if answer is None else answer.results
        return dict.fromkeys(groups, int(_GONE)) | {one.group_id: int(one.error_code) for one in results}

    def _delete_on(
        self, cluster: str, version: int, groups: Sequence[Any], table: RoutingTable
    ) -> SubRequests[dict[Any, int]]:
        """Delete groups until one has no coordinator: a cluster that hangs would delay each of the others."""
        codes = dict.fromkeys(groups, int(_AGAIN))
        for group in groups:
            coordinator = yield from self._committed.coordinator(str(group), cluster, table)
            if isinstance(coordinator, Code):
                break
            found = yield from self._delete_at(coordinator, version, [group])
            if self._committed.moved(group, coordinator, [*found.values()]):
                break
            codes |= found
        return codes

    def delete_offsets(self, request: Request, broker: BrokerId | None, table: RoutingTable) -> RequestDecision:
        """OffsetDelete: delete each offset where it is kept; elsewhere only without members."""
        asked = decode_request(request)
        if broker is None or broker.cluster != table.group_home():
            return RespondNow(build_error_response(request, Code.not_coordinator))
        if table.groups_gathering:
            return ParkRequest(build_error_response(request, _AGAIN))
        shares = group_topics_by_cluster(asked.topics, table)
        if set(shares) <= {broker.cluster}:
            return ForwardRequest(broker, topics=(GROUPS_HOME,))
        return FanOut(self._delete_offsets(request, asked, shares, broker, table), CHANGE_TIMEOUT_S, (GROUPS_HOME,))

    def _delete_offsets(
        self, request: Request, asked: Any, shares: dict[str, tuple[Any, ...]], broker: BrokerId, table: RoutingTable
    ) -> FanOutSteps:
        idle = yield from check_group_idle(str(asked.group_id), broker, table)
        if idle is None:
            return build_error_response(request, _AGAIN)
        kind = get_response_type(api_versions.OFFSET_DELETE, request.version)
        results: list[Any] = []
        questions: dict[BrokerId, Any] = {}
        for cluster, topics in shares.items():
            coordinator: BrokerId | Code = broker
            if cluster != broker.cluster:
                coordinator = Code.group_subscribed_to_topic
                if idle:
                    coordinator = yield from self._committed.coordinator(str(asked.group_id), cluster, table)
            if isinstance(coordinator, Code):
                results += [build_topic_errors(kind, topic, coordinator) for topic in topics]
            else:
                questions[coordinator] = replace(asked, topics=topics)
        answers = yield from ask_brokers(questions)
        for at, answer in answers.items():
            code = int(_GONE if answer is None else answer.error_code)
            if at != broker and self._committed.moved(asked.group_id, at, [code]):
                code = _AGAIN
            if code == Code.group_id_not_found and len(shares) > 1:
                # Nothing to delete here, but maybe elsewhere.
                results += [build_topic_errors(kind, topic, Code.none) for topic in shares[at.cluster]]
            elif code:
                if len(shares) == 1:
                    return build_error_response(request, code)
                results += [build_topic_errors(kind, topic, code) for topic in shares[at.cluster]]
            elif answer is not None:
                results += answer.topics
        return build_response(request, topics=results)


def _group_codes(request: Request, codes: Mapping[Any, int]) -> Parts:
    return build_response(request, results=[{"group_id": group, "error_code": code} for group, code in codes.items()])


def describe_log_dirs(request: Request, broker: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Describe the broker's log dirs without twins: clients know no replicas there."""
    decode_request(request)
    if broker is None:
        return respond_empty(request)
    return ForwardRequest(broker, rewrite=partial(_without_twins, request=request, cluster=broker.cluster, table=table))


def _without_twins(view: memoryview, at: int, request: Request, cluster: str, table: RoutingTable) -> Parts:
    answer = decode_response(request.key, request.version, view[at:])
    results = []
    for result in answer.results:
        here = tuple(topic for topic in result.topics if not table.is_elsewhere(str(topic.name), cluster))
        results.append(replace(result, topics=here))
    return encode_message(replace(answer, results=tuple(results)))


def list_transactions(request: Request, broker: BrokerId | None) -> RequestDecision:
    """List the broker's transactions. Clients ask every broker, and so see all clusters."""
    decode_request(request)
    return respond_empty(request) if broker is None else ForwardRequest(broker)


def describe_transactions(request: Request, broker: BrokerId | None, table: RoutingTable) -> RequestDecision:
    """Describe transactions at their coordinators, on the groups' home."""
    if broker is not None and broker.cluster == table.group_home():
        return ForwardRequest(broker)
    ids = decode_request(request).transactional_ids
    states = [{"transactional_id": one, "error_code": Code.not_coordinator} for one in ids]
    return RespondNow(build_response(request, transaction_states=states))


def respond_empty(request: Request) -> RequestDecision:
    """Answer for the first port, which belongs to no broker."""
    return RespondNow(build_response(request))


def _refusal(why: str) -> dict[str, Any]:
    return {"error_code": Code.policy_violation, "error_message": why}


def _refuse_quotas(asked: Any) -> dict[str, Any]:
    entities = [[asdict(part) for part in entry.entity] for entry in asked.entries]
    return {"entries": [{"entity": entity, **_refusal(QUOTAS_REFUSED_MESSAGE)} for entity in entities]}


def _refuse_users(asked: Any) -> dict[str, Any]:
    users = dict.fromkeys(one.name for one in (*asked.deletions, *asked.upsertions))
    return {"results": [{"user": user, **_refusal(SCRAM_REFUSED_MESSAGE)} for user in users]}


def _refuse_election(asked: Any) -> dict[str, Any]:
    """Refuse an election. Without named partitions the response has only an error code."""
    if asked.topic_partitions is None:
        return {"error_code": Code.policy_violation}
    results = []
    for topic in asked.topic_partitions:
        partitions = [{"partition_id": one, **_refusal(ELECTION_REFUSED_MESSAGE)} for one in topic.partitions]
        results.append({"topic": topic.topic, "partition_result": partitions})
    return {"replica_election_results": results}


def _refuse_reassignment(asked: Any) -> dict[str, Any]:
    refusal, responses = _refusal(REASSIGNMENT_REFUSED_MESSAGE), []
    for topic in asked.topics:
        partitions = [{"partition_index": one.partition_index, **refusal} for one in topic.partitions]
        responses.append({"name": topic.name, "partitions": partitions})
    return {**refusal, "responses": responses}


# Each returns the values of the response.
_REFUSALS: Final[Mapping[int, Callable[[Any], dict[str, Any]]]] = {
    api_versions.CREATE_ACLS: lambda asked: {"results": [_refusal(ACLS_REFUSED_MESSAGE) for _ in asked.creations]},
    api_versions.DELETE_ACLS: lambda asked: {"filter_results": [_refusal(ACLS_REFUSED_MESSAGE) for _ in asked.filters]},
    api_versions.ELECT_LEADERS: _refuse_election,
    api_versions.ALTER_PARTITION_REASSIGNMENTS: _refuse_reassignment,
    api_versions.ALTER_CLIENT_QUOTAS: _refuse_quotas,
    api_versions.ALTER_SCRAM_USERS: _refuse_users,
}


def _refuse(_: AdminRequests, request: Request, __: BrokerId | None, ___: RoutingTable) -> RequestDecision:
    return RespondNow(build_response(request, **_REFUSALS[request.key](decode_request(request))))


AdminRequestRule: TypeAlias = Callable[[AdminRequests, Request, BrokerId | None, RoutingTable], RequestDecision]


def _fan_out(
    steps: Callable[[AdminRequests, Request, Any, RoutingTable], FanOutSteps], wait_s: float = CHANGE_TIMEOUT_S
) -> AdminRequestRule:
    return lambda client, request, _, table: FanOut(steps(client, request, decode_request(request), table), wait_s)


ADMIN_RULES: Final[Mapping[int, AdminRequestRule]] = {
    api_versions.CREATE_TOPICS: _fan_out(AdminRequests.create_topics),
    api_versions.DELETE_TOPICS: _fan_out(AdminRequests.delete_topics),
    api_versions.CREATE_PARTITIONS: _fan_out(AdminRequests.create_partitions),
    apis.DESCRIBE_CONFIGS: _fan_out(AdminRequests.configs, FAN_OUT_TIMEOUT_S),
    api_versions.ALTER_CONFIGS: _fan_out(AdminRequests.configs),
    api_versions.INCREMENTAL_ALTER_CONFIGS: _fan_out(AdminRequests.configs),
    api_versions.DESCRIBE_ACLS: _fan_out(AdminRequests.ask_first_cluster, FAN_OUT_TIMEOUT_S),
    api_versions.DESCRIBE_CLIENT_QUOTAS: _fan_out(AdminRequests.ask_first_cluster, FAN_OUT_TIMEOUT_S),
    api_versions.LIST_PARTITION_REASSIGNMENTS: _fan_out(AdminRequests.list_reassignments, FAN_OUT_TIMEOUT_S),
    api_versions.DELETE_GROUPS: AdminRequests.delete_groups,
    api_versions.OFFSET_DELETE: AdminRequests.delete_offsets,
    api_versions.DELETE_RECORDS: lambda _, request, broker, table: route_by_partitions(request, broker, table),
    apis.DESCRIBE_PRODUCERS: lambda _, request, broker, table: route_by_partitions(request, broker, table),
    api_versions.DESCRIBE_LOG_DIRS: lambda _, request, broker, table: describe_log_dirs(request, broker, table),
    api_versions.LIST_TRANSACTIONS: lambda _, request, broker, __: list_transactions(request, broker),
    apis.DESCRIBE_TRANSACTIONS: lambda _, request, broker, table: describe_transactions(request, broker, table),
    **dict.fromkeys(_REFUSALS, _refuse),
}
# Requests that change topics.
_GUARDED: Final = _ARRAYS.keys() - {apis.DESCRIBE_CONFIGS} | {api_versions.DELETE_RECORDS}


def refuse_guarded(request: Request, table: RoutingTable) -> RequestDecision | None:
    """Refuse changes of Kafka's and Twinshore's own topics, as a whole, and requests as a replica; None if allowed."""
    if request.version >= _OF_REPLICAS.get(request.key, 1 << 15):
        return _refuse_replica(request)
    if request.key not in _GUARDED:
        return None
    asked = decode_request(request)
    parts = asked.topics if request.key == api_versions.DELETE_RECORDS else getattr(asked, _ARRAYS[request.key].parts)
    guarded = next((name for name in map(_topic_of, parts) if is_reserved_topic(name)), None)
    if guarded is None:
        return None
    if request.key == api_versions.DELETE_RECORDS:
        return refuse_all_partitions(request, asked, Code.policy_violation)
    split = SplitRequest(request, asked, table)
    for part in parts:
        why = f"topic {guarded} is Kafka's or Twinshore's own: change it at the cluster's own address, alone"
        split.refuse(part, Code.policy_violation, why)
    return FanOut(split.ask())


def _topic_of(part: Any) -> str:
    """Returns the topic that a part of a request changes; empty if none."""
    if isinstance(part, str):
        return part
    if hasattr(part, "resource_type"):
        return str(part.resource_name) if part.resource_type == TOPIC_RESOURCE_TYPE else ""
    return str(part.name)


def _refuse_replica(request: Request) -> RequestDecision | None:
    try:
        (replica,) = I32.unpack_from(request.view, request.position)
    except PAST_END_ERRORS as error:
        raise WireError(f"{apis.api_name(request.key)}: it has no replica id") from error
    if replica in _CONSUMERS:
        return None
    name = apis.api_name(request.key)
    return DisconnectClient(f"it asked {name} as replica {replica}, and no broker connects through a proxy")
