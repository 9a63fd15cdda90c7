"""ACLs, client quotas and SCRAM users of one cluster: read and changed through any of its brokers."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kio.schema.alter_client_quotas.v1 import AlterClientQuotasRequest, AlterClientQuotasResponse
from kio.schema.alter_client_quotas.v1.request import EntityData, EntryData, OpData
from kio.schema.alter_user_scram_credentials.v0 import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kio.schema.alter_user_scram_credentials.v0.request import ScramCredentialUpsertion
from kio.schema.create_acls.v2 import CreateAclsRequest, CreateAclsResponse
from kio.schema.create_acls.v2.request import AclCreation
from kio.schema.delete_acls.v2 import DeleteAclsRequest, DeleteAclsResponse
from kio.schema.delete_acls.v2.request import DeleteAclsFilter
from kio.schema.describe_acls.v2 import DescribeAclsRequest, DescribeAclsResponse
from kio.schema.describe_client_quotas.v1 import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kio.schema.describe_cluster.v0 import DescribeClusterRequest, DescribeClusterResponse
from kio.schema.describe_user_scram_credentials.v0 import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kio.static.primitive import f64, i8, i32

from twinshore.fleet import KafkaError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, kafka_error
from twinshore.kafka.rights import Acl, Operation, QuotaEntity, ScramUser

ANY = i8(1)
AT_ONCE = 500
SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
Refused = dict[Acl, KafkaError]


def read_acls(cluster: KafkaCluster, broker: int | None = None) -> frozenset[Acl] | None:
    """Every ACL of the cluster; None where it has no authorizer. `broker`: as this one knows and enforces them now,
    since each hears of a change by itself."""

    def ask(connection: Connection, timeout_s: float) -> frozenset[Acl] | None:
        request = DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        answer = connection.call(request, DescribeAclsResponse, timeout_s=timeout_s)
        if int(answer.error_code) == Code.SECURITY_DISABLED:
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


def may_alter(cluster: KafkaCluster) -> bool:
    """Whether we may change its ACLs."""

    def ask(connection: Connection, timeout_s: float) -> bool:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = connection.call(request, DescribeClusterResponse, timeout_s=timeout_s)
        if int(answer.error_code) == Code.CLUSTER_AUTHORIZATION_FAILED:
            return False
        _check(answer.error_code, cluster, "ask what we may do", answer.error_message, "Describe on the cluster")
        return bool(int(answer.cluster_authorized_operations) & (1 << Operation.ALTER))

    return cluster.anybody("what we may do", ask)


def create_acls(cluster: KafkaCluster, acls: Sequence[Acl]) -> Refused:
    """Adds them; what is there already stays. Returns those that were refused, each with its error."""
    return _in_parts(cluster, acls, "add", _create)


def delete_acls(cluster: KafkaCluster, acls: Sequence[Acl]) -> Refused:
    """Removes exactly these; what is not there is no error. Returns those that were refused."""
    return _in_parts(cluster, acls, "remove", _delete)


def _in_parts(
    cluster: KafkaCluster,
    acls: Sequence[Acl],
    verb: str,
    act: Callable[[Sequence[Acl], Connection, float], list[tuple[int, str | None]]],
) -> Refused:
    refused: Refused = {}
    for start in range(0, len(acls), AT_ONCE):
        part = acls[start : start + AT_ONCE]
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
        failed = next((each for each in one.matching_acls if each.error_code), None)
        code, message = (one.error_code, one.error_message)
        found.append((int(failed.error_code), failed.error_message) if failed and not code else (int(code), message))
    return found


def read_quotas(cluster: KafkaCluster) -> dict[QuotaEntity, dict[str, float]]:
    """Every client quota of the cluster."""

    def ask(connection: Connection, timeout_s: float) -> dict[QuotaEntity, dict[str, float]]:
        request = DescribeClientQuotasRequest(components=(), strict=False)
        answer = connection.call(request, DescribeClientQuotasResponse, timeout_s=timeout_s)
        right = "DescribeConfigs on the cluster"
        _check(answer.error_code, cluster, "read client quotas", answer.error_message, right)
        return {
            QuotaEntity(tuple(sorted((part.entity_type, part.entity_name or "") for part in entry.entity))): {
                value.key: float(value.value) for value in entry.values
            }
            for entry in answer.entries or ()
        }

    return cluster.anybody("client quotas", ask)


def alter_quotas(cluster: KafkaCluster, entity: QuotaEntity, values: Mapping[str, float | None]) -> None:
    """Sets these quotas of the entity; None removes one."""

    def ask(connection: Connection, timeout_s: float) -> None:
        entry = EntryData(
            entity=tuple(EntityData(entity_type=kind, entity_name=name or None) for kind, name in entity.parts),
            ops=tuple(
                OpData(key=key, value=f64(value or 0.0), remove=value is None) for key, value in sorted(values.items())
            ),
        )
        request = AlterClientQuotasRequest(entries=(entry,), validate_only=False)
        answer = connection.call(request, AlterClientQuotasResponse, timeout_s=timeout_s)
        for one in answer.entries:
            what = f"change quotas of {entity}"
            _check(one.error_code, cluster, what, one.error_message, "AlterConfigs on the cluster")

    cluster.change("client quotas", ask)


def read_scram_users(cluster: KafkaCluster) -> frozenset[ScramUser]:
    """Every SCRAM credential, without what makes it one: no cluster tells that."""

    def ask(connection: Connection, timeout_s: float) -> frozenset[ScramUser]:
        request = DescribeUserScramCredentialsRequest(users=None)
        answer = connection.call(request, DescribeUserScramCredentialsResponse, timeout_s=timeout_s)
        _check(answer.error_code, cluster, "read SCRAM users", answer.error_message, "Describe on the cluster")
        return frozenset(
            ScramUser(one.user, SCRAM.get(int(info.mechanism), str(info.mechanism)), int(info.iterations))
            for one in answer.results
            for info in one.credential_infos
        )

    return cluster.anybody("SCRAM users", ask)


def set_scram_password(cluster: KafkaCluster, user: ScramUser, password: str) -> None:
    """Makes the user, or gives it this password."""
    numbers = {name: number for number, name in SCRAM.items()}
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
