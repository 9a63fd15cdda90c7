"""Topics and configs, ACLs, client quotas and SCRAM users of one cluster.

An address may lead to another cluster by now, and a name may mean another topic. So each change of a topic names its id
too, and uses a connection that has just shown the right cluster and topic. No client library offers that.
"""

from __future__ import annotations

import datetime
import hashlib
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kio.schema.alter_client_quotas.v1 import AlterClientQuotasRequest, AlterClientQuotasResponse
from kio.schema.alter_client_quotas.v1.request import EntityData, EntryData, OpData
from kio.schema.alter_user_scram_credentials.v0 import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kio.schema.alter_user_scram_credentials.v0.request import ScramCredentialUpsertion
from kio.schema.create_acls.v2 import CreateAclsRequest, CreateAclsResponse
from kio.schema.create_acls.v2.request import AclCreation
from kio.schema.create_partitions.v3 import CreatePartitionsRequest, CreatePartitionsResponse
from kio.schema.create_partitions.v3.request import CreatePartitionsTopic
from kio.schema.create_topics.v7 import CreateTopicsRequest, CreateTopicsResponse
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig
from kio.schema.delete_acls.v2 import DeleteAclsRequest, DeleteAclsResponse
from kio.schema.delete_acls.v2.request import DeleteAclsFilter
from kio.schema.delete_topics.v6 import DeleteTopicsRequest, DeleteTopicsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicState
from kio.schema.describe_acls.v2 import DescribeAclsRequest, DescribeAclsResponse
from kio.schema.describe_client_quotas.v1 import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kio.schema.describe_cluster.v0 import DescribeClusterRequest, DescribeClusterResponse
from kio.schema.describe_configs.v4 import DescribeConfigsRequest, DescribeConfigsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResult
from kio.schema.describe_user_scram_credentials.v0 import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kio.schema.incremental_alter_configs.v1 import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from kio.schema.incremental_alter_configs.v1.request import AlterableConfig, AlterConfigsResource
from kio.schema.types import TopicName
from kio.static.primitive import f64, i8, i16, i32, i32Timedelta

from twinshore.config.errors import KafkaError
from twinshore.config.grouping import in_slices
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.protocol.access_control import Acl, AclOperation, QuotaEntity, ScramUser
from twinshore.kafka.protocol.error_codes import Code, kafka_error

TOPIC_RESOURCE, BROKER_RESOURCE = i8(2), i8(4)
SET_OPERATION, DELETE_OPERATION = i8(0), i8(1)
TOPICS_PER_DESCRIBE_CONFIGS = 200
# Where a value was set, as Kafka numbers it.
CONFIG_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
DEFAULT_CONFIG_SOURCE = 5


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """`value`: None for a secret. `source`: Kafka's name for where it was set."""

    name: str
    value: str | None
    source: str

    @property
    def own(self) -> bool:
        """Whether the value is set on the topic itself."""
        return self.source == "DYNAMIC_TOPIC_CONFIG"


class Admin:
    """Topic administration. Thread-safe. `topic_id`: a topic of the same name with another id is not changed."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._name = cluster.name

    def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`replication_factor` -1: the cluster's default."""
        configs = tuple(CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items())
        topic = CreatableTopic(
            name=TopicName(name),
            num_partitions=i32(partitions),
            replication_factor=i16(replication_factor),
            assignments=(),
            configs=configs,
        )

        def ask(connection: Connection, timeout_s: float) -> None:
            request = CreateTopicsRequest(topics=(topic,), timeout=_wait(timeout_s), validate_only=False)
            for one in connection.call(request, CreateTopicsResponse, timeout_s=timeout_s).topics:
                right = f"Create on topic {name} or on the cluster"
                _check(one.error_code, self._cluster, f"create topic {name}", one.error_message, right)

        self._cluster.change(f"create topic {name}", ask)

    def create_partitions(self, name: str, total: int, *, topic_id: bytes) -> None:
        topic = CreatePartitionsTopic(name=TopicName(name), count=i32(total), assignments=None)
        what = f"grow topic {name} to {total} partitions"

        def ask(connection: Connection, timeout_s: float) -> None:
            request = CreatePartitionsRequest(topics=(topic,), timeout=_wait(timeout_s), validate_only=False)
            for one in connection.call(request, CreatePartitionsResponse, timeout_s=timeout_s).results:
                _check(one.error_code, self._cluster, what, one.error_message, f"Alter on topic {name}")

        self._cluster.change(what, ask, {name: topic_id})

    def delete_topic(self, name: str, *, topic_id: bytes, allow: Callable[[], None] = lambda: None) -> None:
        """Delete the topic with this id. `allow` is called right before each request, and raises to prevent it."""
        topic = DeleteTopicState(name=None, topic_id=uuid.UUID(bytes=topic_id))
        what = f"delete topic {name}"

        def ask(connection: Connection, timeout_s: float) -> None:
            allow()
            request = DeleteTopicsRequest(topics=(topic,), timeout=_wait(timeout_s))
            for one in connection.call(request, DeleteTopicsResponse, timeout_s=timeout_s).responses:
                # The id is gone: deleted by our own request whose response was lost, or by another client.
                gone = int(one.error_code) == Code.unknown_topic_id
                code = Code.unknown_topic_or_partition if gone else one.error_code
                _check(code, self._cluster, what, one.error_message, f"Delete on topic {name}")

        self._cluster.change(what, ask, {name: topic_id})

    def alter_topic_settings(self, name: str, changes: Mapping[str, str | None], *, topic_id: bytes) -> None:
        """Change only these configs; None restores a default."""
        if not changes:
            return
        operations = {key: DELETE_OPERATION if value is None else SET_OPERATION for key, value in changes.items()}
        configs = tuple(
            AlterableConfig(name=key, config_operation=operations[key], value=value) for key, value in changes.items()
        )
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)
        what = f"change settings of topic {name}"

        def ask(connection: Connection, timeout_s: float) -> None:
            request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
            for one in connection.call(request, IncrementalAlterConfigsResponse, timeout_s=timeout_s).responses:
                _check(one.error_code, self._cluster, what, one.error_message, f"AlterConfigs on topic {name}")

        self._cluster.change(what, ask, {name: topic_id})

    def topic_settings(self, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Returns configs that differ from Kafka's defaults. The first refused topic raises KafkaError."""
        found, errors = self.readable_settings(names)
        for error in errors.values():
            raise error
        return found

    def readable_settings(
        self, names: Iterable[str], keys: Sequence[str] = ()
    ) -> tuple[dict[str, dict[str, ConfigEntry]], dict[str, KafkaError]]:
        """Like `topic_settings`, with errors of refused topics. With `keys`: only these configs, defaults too."""
        found: dict[str, dict[str, ConfigEntry]] = {}
        errors: dict[str, KafkaError] = {}
        for some in in_slices(dict.fromkeys(names), TOPICS_PER_DESCRIBE_CONFIGS):
            for one in self._cluster.anybody("settings of topics", _describing(TOPIC_RESOURCE, some, keys)):
                name = one.resource_name
                if one.error_code:
                    place = f"{self._name}: read settings of topic {name}"
                    right = f"DescribeConfigs on topic {name}"
                    errors[name] = kafka_error(int(one.error_code), place, detail=one.error_message or "", right=right)
                else:
                    found[name] = _settings(one, defaults=bool(keys))
        return found, errors

    def broker_settings(self, node_id: int, keys: Sequence[str] = ()) -> dict[str, ConfigEntry]:
        """Returns a broker's configs that differ from Kafka's defaults. With `keys`: only these, defaults too."""
        asking = _describing(BROKER_RESOURCE, [str(node_id)], keys)
        (found,) = self._cluster.at(node_id, f"settings of broker {node_id}", asking)
        what = f"read settings of broker {node_id}"
        _check(found.error_code, self._cluster, what, found.error_message, "DescribeConfigs on the cluster")
        return _settings(found, defaults=bool(keys))


def _describing(
    kind: i8, names: Sequence[str], keys: Sequence[str] = ()
) -> Callable[[Connection, float], Sequence[DescribeConfigsResult]]:
    resources = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=tuple(keys) or None)
        for name in names
    )

    def ask(connection: Connection, timeout_s: float) -> Sequence[DescribeConfigsResult]:
        request = DescribeConfigsRequest(resources=resources)
        answer = connection.call(request, DescribeConfigsResponse, timeout_s=timeout_s)
        wanted = set(names)
        found = [one for one in answer.results or () if one.resource_name in wanted]
        if lacking := len(wanted) - len(found):
            raise KafkaError(f"{connection.place}: the answer lacks settings of {lacking} resources", retriable=True)
        return found

    return ask


def _settings(answer: DescribeConfigsResult, *, defaults: bool) -> dict[str, ConfigEntry]:
    return {
        one.name: ConfigEntry(
            one.name,
            None if one.is_sensitive else one.value,
            CONFIG_SOURCES.get(int(one.config_source), f"SOURCE_{int(one.config_source)}"),
        )
        for one in answer.configs
        if defaults or int(one.config_source) != DEFAULT_CONFIG_SOURCE
    }


def _wait(timeout_s: float) -> i32Timedelta:
    """Returns a broker's time limit that leaves time for the response."""
    return i32Timedelta.parse(datetime.timedelta(milliseconds=int(800 * timeout_s)))


MATCH_ANY = i8(1)
ACLS_PER_REQUEST = 500
SCRAM_MECHANISM_NAMES = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
RefusedAcls = dict[Acl, KafkaError]


def read_acls(cluster: KafkaCluster, broker: int | None = None) -> frozenset[Acl] | None:
    """Returns all ACLs; None without an authorizer. `broker`: as this one enforces them, since each learns changes by
    itself.
    """

    def ask(connection: Connection, timeout_s: float) -> frozenset[Acl] | None:
        request = DescribeAclsRequest(
            resource_type_filter=MATCH_ANY,
            resource_name_filter=None,
            pattern_type_filter=MATCH_ANY,
            principal_filter=None,
            host_filter=None,
            operation=MATCH_ANY,
            permission_type=MATCH_ANY,
        )
        answer = connection.call(request, DescribeAclsResponse, timeout_s=timeout_s)
        if int(answer.error_code) == Code.security_disabled:
            return None
        _check(answer.error_code, cluster, "read ACLs", answer.error_message, "Describe on the cluster")
        return frozenset(
            Acl(
                int(place.resource_type),
                place.resource_name,
                int(place.pattern_type),
                one.principal,
                one.host,
                int(one.operation),
                int(one.permission_type),
            )
            for place in answer.resources
            for one in place.acls
        )

    return cluster.anybody("ACLs", ask) if broker is None else cluster.at(broker, f"ACLs of broker {broker}", ask)


def may_alter_acls(cluster: KafkaCluster) -> bool:
    def ask(connection: Connection, timeout_s: float) -> bool:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = connection.call(request, DescribeClusterResponse, timeout_s=timeout_s)
        if int(answer.error_code) == Code.cluster_authorization_failed:
            return False
        _check(answer.error_code, cluster, "ask what we may do", answer.error_message, "Describe on the cluster")
        return bool(int(answer.cluster_authorized_operations) & (1 << AclOperation.ALTER))

    return cluster.anybody("what we may do", ask)


def create_acls(cluster: KafkaCluster, acls: Sequence[Acl]) -> RefusedAcls:
    """Add ACLs; existing ones stay. Returns refused ones."""
    return _in_parts(cluster, acls, "add", _create)


def delete_acls(cluster: KafkaCluster, acls: Sequence[Acl]) -> RefusedAcls:
    """Remove exactly these ACLs; a missing one is no error. Returns refused ones."""
    return _in_parts(cluster, acls, "remove", _delete)


def _in_parts(
    cluster: KafkaCluster,
    acls: Sequence[Acl],
    verb: str,
    act: Callable[[Sequence[Acl], Connection, float], list[tuple[int, str | None]]],
) -> RefusedAcls:
    refused: RefusedAcls = {}
    for part in in_slices(acls, ACLS_PER_REQUEST):
        results = cluster.change(f"{verb} ACLs", partial(act, part))
        for acl, (code, message) in zip(part, results, strict=True):
            if code:
                place = f"{cluster.name}: {verb} ACL: {acl}"
                refused[acl] = kafka_error(code, place, detail=message or "", right="Alter on the cluster")
    return refused


def _create(acls: Sequence[Acl], connection: Connection, timeout_s: float) -> list[tuple[int, str | None]]:
    creations = tuple(
        AclCreation(
            resource_type=i8(acl.resource),
            resource_name=acl.name,
            resource_pattern_type=i8(acl.pattern),
            principal=acl.principal,
            host=acl.host,
            operation=i8(acl.operation),
            permission_type=i8(acl.permission),
        )
        for acl in acls
    )
    answer = connection.call(CreateAclsRequest(creations=creations), CreateAclsResponse, timeout_s=timeout_s)
    return [(int(one.error_code), one.error_message) for one in answer.results]


def _delete(acls: Sequence[Acl], connection: Connection, timeout_s: float) -> list[tuple[int, str | None]]:
    filters = tuple(
        DeleteAclsFilter(
            resource_type_filter=i8(acl.resource),
            resource_name_filter=acl.name,
            pattern_type_filter=i8(acl.pattern),
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=i8(acl.operation),
            permission_type=i8(acl.permission),
        )
        for acl in acls
    )
    answer = connection.call(DeleteAclsRequest(filters=filters), DeleteAclsResponse, timeout_s=timeout_s)
    found = []
    for one in answer.filter_results:
        failed = [each for each in one.matching_acls if each.error_code]
        refused = failed[0] if failed and not one.error_code else one
        found.append((int(refused.error_code), refused.error_message))
    return found


def read_quotas(cluster: KafkaCluster) -> dict[QuotaEntity, dict[str, float]]:
    def ask(connection: Connection, timeout_s: float) -> dict[QuotaEntity, dict[str, float]]:
        request = DescribeClientQuotasRequest(components=(), strict=False)
        answer = connection.call(request, DescribeClientQuotasResponse, timeout_s=timeout_s)
        right = "DescribeConfigs on the cluster"
        _check(answer.error_code, cluster, "read client quotas", answer.error_message, right)
        found: dict[QuotaEntity, dict[str, float]] = {}
        for entry in answer.entries or ():
            parts = sorted((part.entity_type, part.entity_name or "") for part in entry.entity)
            found[QuotaEntity(tuple(parts))] = {value.key: float(value.value) for value in entry.values}
        return found

    return cluster.anybody("client quotas", ask)


def alter_quotas(cluster: KafkaCluster, entity: QuotaEntity, values: Mapping[str, float | None]) -> None:
    """Set these quotas of the entity; None removes one."""

    def ask(connection: Connection, timeout_s: float) -> None:
        parts = tuple(EntityData(entity_type=kind, entity_name=name or None) for kind, name in entity.parts)
        changes = sorted(values.items())
        ops = tuple(OpData(key=key, value=f64(value or 0.0), remove=value is None) for key, value in changes)
        request = AlterClientQuotasRequest(entries=(EntryData(entity=parts, ops=ops),), validate_only=False)
        answer = connection.call(request, AlterClientQuotasResponse, timeout_s=timeout_s)
        for one in answer.entries:
            what = f"change quotas of {entity}"
            _check(one.error_code, cluster, what, one.error_message, "AlterConfigs on the cluster")

    cluster.change("client quotas", ask)


def read_scram_users(cluster: KafkaCluster) -> frozenset[ScramUser]:
    """Returns all SCRAM users. No cluster returns their credentials."""

    def ask(connection: Connection, timeout_s: float) -> frozenset[ScramUser]:
        request = DescribeUserScramCredentialsRequest(users=None)
        answer = connection.call(request, DescribeUserScramCredentialsResponse, timeout_s=timeout_s)
        _check(answer.error_code, cluster, "read SCRAM users", answer.error_message, "Describe on the cluster")
        named = [(one.user, info) for one in answer.results for info in one.credential_infos]
        names = SCRAM_MECHANISM_NAMES
        return frozenset(
            ScramUser(user, names.get(int(info.mechanism), str(info.mechanism)), int(info.iterations))
            for user, info in named
        )

    return cluster.anybody("SCRAM users", ask)


def set_scram_password(cluster: KafkaCluster, user: ScramUser, password: str) -> None:
    numbers = {name: number for number, name in SCRAM_MECHANISM_NAMES.items()}
    salt = secrets.token_bytes(32)
    digest = user.mechanism.removeprefix("SCRAM-SHA-")
    salted = hashlib.pbkdf2_hmac(f"sha{digest}", password.encode(), salt, user.iterations)

    def ask(connection: Connection, timeout_s: float) -> None:
        upsertion = ScramCredentialUpsertion(
            name=user.name,
            mechanism=i8(numbers[user.mechanism]),
            iterations=i32(user.iterations),
            salt=salt,
            salted_password=salted,
        )
        request = AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,))
        answer = connection.call(request, AlterUserScramCredentialsResponse, timeout_s=timeout_s)
        for one in answer.results:
            what = f"make SCRAM user {user.name}"
            _check(one.error_code, cluster, what, one.error_message, "Alter on the cluster")

    cluster.change("SCRAM users", ask)


def _check(code: int, cluster: KafkaCluster, what: str, message: str | None, right: str) -> None:
    if code:
        raise kafka_error(int(code), f"{cluster.name}: {what}", detail=message or "", right=right)
